"""``kvproof subjects``: list, add and remove what can be checked."""

from typing import Annotated

import typer

from kvproof.commands.options import JsonOption, LoadOption, finish
from kvproof.engines.vllm.release import list_provisioned, remove_provisioned
from kvproof.errors import CouldNotRun
from kvproof.reports.streams import write_line
from kvproof.reports.subjects import Subjects, show_subjects, subjects_json
from kvproof.subjects.names import open_subject
from kvproof.subjects.registry import add_subject, registered_subjects, remove_subject
from model.releases import DIALECTS

RELEASE = "vllm=="


def list_command(json_output: JsonOption = False) -> None:
    """Built-in dialects, provisioned releases, and subjects that were added."""
    subjects = Subjects(
        references=tuple(f"reference:{name}" for name in DIALECTS),
        provisioned=tuple(f"{RELEASE}{release.version}" for release in list_provisioned()),
        added=registered_subjects(),
    )
    finish(
        "clean",
        json_output,
        lambda: subjects_json(subjects),
        lambda console: show_subjects(console, subjects),
    )


def add_command(
    name: Annotated[str, typer.Argument(help="A name of your own, or vllm==VERSION.")],
    subject: Annotated[str | None, typer.Argument(help="What the name stands for.")] = None,
    load: LoadOption = "focused",
) -> None:
    """Give a subject a name (add mine vllm@src), or provision a release (add vllm==VERSION)."""
    if subject is not None:
        add_subject(name, subject)
        write_line(f"{name} stands for {registered_subjects()[name]}")
    elif name.startswith(RELEASE):
        open_subject(name, load=load).close()
        write_line(f"{name} is provisioned")
    else:
        raise CouldNotRun(f"what does {name} stand for? kvproof subjects add {name} SUBJECT")


def remove_command(
    name: Annotated[str, typer.Argument(help="A name that you gave, or vllm==VERSION.")],
) -> None:
    """Forget a subject that was added, or remove a provisioned release (vllm==VERSION)."""
    if name.startswith(RELEASE):
        remove_provisioned(name.removeprefix(RELEASE))
    else:
        remove_subject(name)
    write_line(f"{name} is removed")
