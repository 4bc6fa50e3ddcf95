"""Documents are tested: what they name is there, and the commands that they show run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path

import pytest
from documented import ROOT, check_arguments, commands_of, kvproof_arguments

from kvproof import cli
from kvproof.engines.vllm.release import release_source
from model.releases import NEWEST

DOCUMENTS = sorted(
    file.relative_to(ROOT).as_posix()
    for pattern in ("*.md", "docs/*.md", "specs/*.md")
    for file in ROOT.glob(pattern)
)
COMMENTED = sorted(
    file.relative_to(ROOT).as_posix()
    for folder in ("model", "invariants", "specs", "kvproof", "tests", "benchmarks", "scripts")
    for file in (ROOT / folder).rglob("*")
    if file.suffix in (".py", ".m", ".pml", ".sh", ".txt")
)
TOPS = "model|invariants|specs|kvproof|tests|benchmarks|scripts|docs"
PATH = re.compile(rf"(?<![\w/.@:])((?:{TOPS})/[\w./-]*\w(?:\.\w+)?/?)")
FILE = re.compile(r"`([a-z_]+/[\w/.-]+\.(?:py|json|md|sh|txt|yml))`")
MODULE = re.compile(rf"`((?:{TOPS})(?:\.[a-z_]+)+)[`.(]")
EXAMPLES = {
    "*cluster*": "a level that there might be",
    "*sglang*": "an engine that there might be",
    "specs/corpus/LEVEL*": "names to fill in",
    "tests/v1*": "of vLLM's own source distribution",
    "my/traces": "of a user",
}
TWINS = {
    "tests/test_automation.py",
    "tests/test_documents.py",
    "tests/test_house.py",
    "tests/test_layers.py",
}
"""They name files that are not there, to be seen."""


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def is_example(path: str) -> bool:
    return any(fnmatch(path, pattern) for pattern in EXAMPLES)


def missing_paths(text: str) -> set[str]:
    """Files, folders and modules of the clone that a text names and that are not there."""
    paths = {path.rstrip("/.") for path in PATH.findall(text)}
    paths |= {module.replace(".", "/") for module in MODULE.findall(text)}
    return {path for path in paths if not _is_there(path) and not is_example(path)}


def _is_there(path: str) -> bool:
    """A name in a module counts, if its module is there: ``model/pool.NULL``."""
    place = ROOT / path
    within = place.parent.with_suffix(".py")
    return place.exists() or place.with_suffix(".py").exists() or within.exists()


@pytest.mark.parametrize("name", DOCUMENTS)
def test_what_a_document_names_is_there(name: str) -> None:
    named = {path for path in FILE.findall(text_of(name)) if not is_example(path)}
    assert missing_paths(text_of(name)) == set()
    assert {path for path in named if not (ROOT / path).exists()} == set()


def test_what_comments_name_is_there() -> None:
    named = {name for name in COMMENTED if name not in TWINS}
    assert {f"{name}: {p}" for name in named for p in missing_paths(text_of(name))} == set()


@pytest.mark.parametrize(
    "text",
    [
        "see specs/run.py",
        "in (specs/corpora/k1.json)",
        "`invariants.shadow.Shadow` follows",
        "`invariants/rules_of_old.py`",
        "under kvproof/nowhere/ lies",
    ],
)
def test_a_name_of_what_is_not_there_is_seen(text: str) -> None:
    assert len(missing_paths(text)) == 1


def is_only_named(arguments: Sequence[str]) -> bool:
    """A command of which no option is shown: ``kvproof bounds``, ``kvproof explore …``."""
    return not [word for word in arguments[1:] if word != "…"]


def shown_in(name: str) -> list[list[str]]:
    return [call for command in commands_of(text_of(name)) for call in kvproof_arguments(command)]


def check_shown(arguments: list[str]) -> None:
    """Raises what the command line would raise."""
    try:
        check_arguments([word for word in arguments if word != "…"])
    except cli.UsageError as error:
        if not (is_only_named(arguments) and type(error).__name__ == "MissingParameter"):
            raise


@pytest.mark.parametrize("name", DOCUMENTS)
def test_commands_that_are_shown_have_these_options(name: str) -> None:
    for arguments in shown_in(name):
        if arguments not in (["--help"], ["--version"]):
            check_shown(arguments)


@pytest.mark.parametrize(
    "arguments",
    [["serch"], ["search", "--sbject", "x"], ["search"], ["soak", "--subject", "x", "--seed", "n"]],
)
def test_a_command_that_is_shown_wrongly_is_seen(arguments: list[str]) -> None:
    if is_only_named(arguments) and arguments != ["serch"]:
        arguments = [*arguments, "--json"]
    with pytest.raises(cli.UsageError):
        check_shown(arguments)


def test_commands_are_found_however_they_are_shown() -> None:
    text = """
Run `kvproof prove --only
ID`, or

    $ uv run kvproof bounds --blocks 7 \\
          --hot 2     # two
    pip install uv && uv run kvproof gate
    - run: uv run --project kvproof kvproof gate --json || [ $? -eq 1 ]

kvproof is no command here.
"""
    calls = [call for command in commands_of(text) for call in kvproof_arguments(command)]
    assert calls == [
        ["bounds", "--blocks", "7", "--hot", "2"],
        ["gate"],
        ["gate", "--json"],
        ["prove", "--only", "ID"],
    ]


PARSED = {
    "gate": "takes minutes; .ci/run runs it, and tests/test_wheel.py a small one",
    "prove": "tests/invariants/ proves everything",
    "bounds": "README shows no numbers; those of docs/bounds.md are compared",
    "explore": "README shows no instance; those of docs/exhaustive-search.md are compared",
    "check-trace": "needs the log of a live engine; tests/kvproof/commands/ has one",
}
"""Commands of README.md that are only parsed, and why."""
SMALL = {
    "search": ["--max-examples", "20", "--seed", "1"],
    "soak": ["--steps", "200"],
    "diff": ["--programs", "5", "--seed", "1"],
}
"""Budgets in place of those shown: of an option that is given twice the last counts."""
PLACES = {
    "specs/corpus/LEVEL/NAME.json": "specs/corpus/scheduler/k5-whole-steps.json",
    "CASEFILE": "specs/corpus/scheduler/k5-whole-steps.json",
    "vllm==VERSION": f"vllm=={NEWEST.version}",
    "ID": "I4",
}


def readme_calls() -> list[list[str]]:
    calls = [call for call in shown_in("README.md") if call and call[0] not in PARSED]
    return [call for call in calls if not is_only_named(call) or call[0] in ("table", "record")]


def runnable(arguments: Sequence[str], folder: Path) -> list[str]:
    """A command as shown, with something in the place of names, and a small budget."""
    checkout = f"vllm@{release_source(NEWEST.version)}"
    places = PLACES | {"vllm@/path/to/vllm": checkout}
    words = [places.get(word, word) for word in arguments]
    words = [str(ROOT / word) if word.startswith("specs/corpus/") else word for word in words]
    out = ["--out", str(folder / "out")] if words[0] in SMALL else []
    return [*words, *SMALL.get(words[0], []), *out]


def test_readme_shows_each_of_the_main_commands() -> None:
    shown = {call[0] for call in shown_in("README.md")}
    assert shown >= {"gate", "table", "search", "soak", "diff", "replay", "export", *PARSED}


@pytest.mark.parametrize("arguments", readme_calls(), ids=" ".join)
def test_a_command_of_readme_runs(
    arguments: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    code = cli.run(runnable(arguments, tmp_path))
    shown = capfd.readouterr()
    assert code in (0, 1) or "\nincomplete" in shown.out, shown.err


def blocks_after(text: str) -> dict[str, str]:
    """What a document shows of the output of a command, by command: lines after ``$ …``."""
    joined = re.sub(r"\\\n\s*", "", text)
    found: dict[str, str] = {}
    for block in re.findall(r"(?:^    .*\n|^\n(?=    ))+", joined, flags=re.MULTILINE):
        for piece in re.split(r"^    \$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = piece.partition("\n")
            found[command] = re.sub("^    ", "", output, flags=re.MULTILINE).rstrip()
    return found


def without_time(text: str) -> list[str]:
    """Lines, but for what differs from run to run, and how they are broken."""
    timed = re.sub(r"in \d+\.\d s \([\d,]+ states/s\)", "in T", text)
    return re.sub(r"[ \n]+", " ", timed).strip().split(" ")


@pytest.mark.parametrize(
    ("name", "command"),
    [
        (name, command)
        for name in ("docs/bounds.md", "docs/exhaustive-search.md")
        for command in blocks_after(text_of(name))
        if "|" not in command
    ],
)
def test_a_document_shows_what_a_command_prints(
    name: str,
    command: str,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path_factory.mktemp("shown"))
    monkeypatch.setenv("COLUMNS", "110")
    shown = blocks_after(text_of(name))
    before = [earlier for earlier in shown if "kvproof replay" in command and "explore" in earlier]
    for earlier in before[:1]:
        (arguments,) = kvproof_arguments(earlier)
        cli.run(arguments)
        capfd.readouterr()
    (arguments,) = kvproof_arguments(command)
    assert cli.run(arguments) != 2
    assert without_time(capfd.readouterr().out) == without_time(shown[command])


def fenced_after(text: str, words: str) -> str:
    """The fenced block that follows some words."""
    return text.split(words, 1)[1].split("```\n", 2)[1]


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (
            "--subject reference:deferred-ordered`",
            "table --subject vllm==0.30.0 --subject vllm==0.33.0 "
            "--subject reference:charged --subject reference:deferred-ordered",
        ),
        (
            "## How to read a failure",
            "search --subject vllm==0.30.0 --rule I4 --seed 3 --out found",
        ),
    ],
)
def test_readme_shows_what_a_command_prints(
    words: str,
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "110")
    cli.run(command.split())
    printed = without_time(capfd.readouterr().out)
    shown = without_time(fenced_after(text_of("README.md"), words))
    assert any(printed[i : i + len(shown)] == shown for i in range(len(printed))), printed
