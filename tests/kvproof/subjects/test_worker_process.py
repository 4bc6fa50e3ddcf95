"""Workers that misbehave, played by small scripts in the place of an engine's interpreter."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kvproof.engines.vllm.engine import Engine
from kvproof.errors import CouldNotRun
from kvproof.subjects.pipeline import Pipeline
from kvproof.subjects.process import End, WorkerCommand, WorkerProcess, describe_exit
from kvproof.subjects.worker import EngineSubject
from model.manager.actions import Action, Arrive
from model.manager.configuration import Configuration
from model.manager.program import ManagerProgram
from model.program import Program
from model.releases import DIALECTS
from model.trace import Trace

HELLO = """
import json, os, signal, sys, time

def say(message):
    print(json.dumps(message), flush=True)

def echo(message):
    actions = message["program"]["actions"]
    say({"responses": [[["arrived", 0, action["prompt"]]] for action in actions],
         "digests": [str(action["prompt"]) for action in actions],
         "snapshots": [], "seconds": 0.5, "failure": None})

say({"protocol": 1})
"""
# Answers each program by its prompt; one with the prompt 13 meets `misbehave`.
SERVE = """
for line in sys.stdin:
    message = json.loads(line)
    if message["program"]["actions"][0]["prompt"] == 13:
        misbehave(message)
    else:
        echo(message)
"""

FakeEngine = Callable[..., EngineSubject]


def misbehaving(statement: str) -> str:
    return f"{HELLO}\ndef misbehave(message):\n    {statement}\n{SERVE}"


def program(prompt: int, num_actions: int = 1) -> ManagerProgram:
    actions: tuple[Action, ...] = (Arrive(prompt=prompt),)
    return Program(Configuration(), actions * num_actions)


BAD, GOOD = program(13), program(1)


def digests(trace: Trace) -> list[str]:
    return [step.digest for step in trace.steps]


def fake_python(folder: Path, script: str) -> Path:
    """An executable that is taken for the engine's interpreter, and runs the script instead."""
    python = folder / "python"
    python.write_text(f"#!{sys.executable}\n{script}")
    python.chmod(0o755)
    return python


@pytest.fixture
def fake_engine(tmp_path: Path) -> Iterator[FakeEngine]:
    opened: list[EngineSubject] = []

    def start(script: str, timeout: float = 10.0) -> EngineSubject:
        engine = Engine("vllm@fake", tmp_path, fake_python(tmp_path, script), "focused")
        opened.append(EngineSubject(engine, "manager", DIALECTS["eager"], timeout))
        return opened[-1]

    yield start
    for subject in opened:
        subject.close()


def is_running(pid: int) -> bool:
    """Whether the process exists and is no zombie that waits to be collected."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def is_gone(pid: int, seconds: float = 5.0) -> bool:
    deadline = time.monotonic() + seconds
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not is_running(pid)


# A program that ends its worker


def test_a_killed_worker_gives_a_crashed_trace_and_the_next_program_works(
    fake_engine: FakeEngine,
) -> None:
    subject = fake_engine(misbehaving("os.kill(os.getpid(), signal.SIGKILL)"))
    crashed = subject.run(BAD)
    assert (crashed.ending, crashed.steps) == ("crashed", ())
    assert crashed.failure == "the worker was killed by signal 9 (SIGKILL)"
    assert digests(subject.run(GOOD)) == ["1"]


def test_a_worker_that_exits_is_told_with_its_code_and_its_last_words(
    fake_engine: FakeEngine,
) -> None:
    subject = fake_engine(misbehaving('print("no more", file=sys.stderr); sys.exit(3)'))
    crashed = subject.run(BAD)
    assert crashed.ending == "crashed"
    assert crashed.failure == "the worker exited with code 3\nno more"


def test_a_worker_that_never_answers_is_hung_within_the_limit(fake_engine: FakeEngine) -> None:
    subject = fake_engine(misbehaving("time.sleep(1000)"), timeout=0.5)
    subject.run(GOOD)
    started = time.monotonic()
    hung = subject.run(BAD)
    assert 0.4 < time.monotonic() - started < 2.0
    assert hung.ending == "hung"
    assert hung.failure == "the worker did not answer within 0.5 s and was killed"
    assert digests(subject.run(GOOD)) == ["1"]


def test_the_time_limit_is_per_program_however_many_wait(fake_engine: FakeEngine) -> None:
    subject = fake_engine(misbehaving("time.sleep(0.2); echo(message)"), timeout=0.9)
    assert [trace.ending for trace in subject.run_many([BAD] * 8)] == ["ended"] * 8


@pytest.mark.parametrize("garbage", ["Segmentation fault", "[1, 2]", "\\xff\\xfe", ""])
def test_garbage_on_standard_output_is_an_error_and_the_next_program_works(
    fake_engine: FakeEngine, garbage: str
) -> None:
    subject = fake_engine(misbehaving(f'sys.stdout.buffer.write(b"{garbage}\\n"); sys.exit()'))
    error = subject.run(BAD)
    assert error.ending == "error"
    assert str(error.failure).startswith("the worker wrote a line that is no answer: ")
    assert digests(subject.run(GOOD)) == ["1"]


@pytest.mark.parametrize(
    "answer",
    [
        "{}",
        '{"responses": [], "digests": [], "snapshots": [], "seconds": 0, "failure": None}',
        '{"responses": [[["idle"]]], "digests": [], "snapshots": [], "seconds": 0}',
        '{"responses": 5, "digests": [], "snapshots": [], "seconds": 0, "failure": None}',
    ],
)
def test_an_answer_that_does_not_fit_the_program_is_an_error(
    fake_engine: FakeEngine, answer: str
) -> None:
    subject = fake_engine(misbehaving(f"say({answer})"))
    error = subject.run(BAD)
    assert error.ending == "error"
    assert str(error.failure).startswith("the worker's answer cannot be read: ")
    assert digests(subject.run(GOOD)) == ["1"]


def test_what_the_worker_could_not_run_is_an_error_in_its_own_words(
    fake_engine: FakeEngine,
) -> None:
    subject = fake_engine(misbehaving('say({"error": "StandInCalled: torch.empty"})'))
    error = subject.run(BAD)
    assert (error.ending, error.failure) == ("error", "StandInCalled: torch.empty")


# Programs that are queued behind it


@pytest.mark.parametrize(
    ("statement", "ending"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "crashed"),
        ("time.sleep(1000)", "hung"),
        ('print("garbage", flush=True)', "error"),
    ],
)
def test_every_program_is_reported_once_and_in_order_whatever_happens_in_between(
    fake_engine: FakeEngine, statement: str, ending: str
) -> None:
    subject = fake_engine(misbehaving(statement), timeout=0.5)
    prompts = [1, 2, 13, 4, 5, 6, 7, 8, 9, 13, 13, 12, 11, 10, 13]
    traces = list(subject.run_many(program(prompt) for prompt in prompts))
    assert [trace.program for trace in traces] == [program(prompt) for prompt in prompts]
    for trace, prompt in zip(traces, prompts, strict=True):
        if prompt == 13:
            assert (trace.ending, trace.steps) == (ending, ())
        else:
            assert (trace.ending, digests(trace)) == ("ended", [str(prompt)])


def test_a_worker_that_dies_between_two_programs_loses_neither(fake_engine: FakeEngine) -> None:
    subject = fake_engine(misbehaving("echo(message); sys.exit(1)"))
    traces = list(subject.run_many([GOOD, BAD, program(4), program(5)]))
    # Nothing tells whether the third was already begun.
    assert [trace.ending for trace in traces] == ["ended", "ended", "crashed", "ended"]


def test_the_worker_runs_a_few_programs_ahead_and_no_more(fake_engine: FakeEngine) -> None:
    subject = fake_engine(misbehaving("pass"))
    drawn: list[int] = []

    def draw() -> Iterator[ManagerProgram]:
        for number in range(100, 200):
            drawn.append(number)
            yield program(number)

    traces = subject.run_many(draw())
    assert digests(next(traces)) == ["100"]
    assert len(drawn) == 8
    assert digests(next(traces)) == ["101"]
    assert len(drawn) == 9


def test_a_run_that_is_given_up_leaves_nothing_behind_for_the_next(
    fake_engine: FakeEngine,
) -> None:
    subject = fake_engine(misbehaving("sys.exit(1)"))
    for trace in subject.run_many([GOOD, program(2), BAD, program(4)]):
        assert digests(trace) == ["1"]
        break
    assert digests(subject.run(program(5))) == ["5"]


def test_two_runs_at_once_each_get_their_own_traces(fake_engine: FakeEngine) -> None:
    subject = fake_engine(misbehaving("sys.exit(1)"))
    first = subject.run_many([program(n) for n in range(100, 120)])
    second = subject.run_many([program(n) for n in range(200, 220)])
    pairs = [(digests(one), digests(two)) for one, two in zip(first, second, strict=True)]
    assert pairs == [([str(n)], [str(n + 100)]) for n in range(100, 120)]


def test_a_worker_that_died_while_it_was_idle_is_no_program_s_fault(
    fake_engine: FakeEngine,
) -> None:
    subject = fake_engine(misbehaving("echo(message); sys.exit(0)"))
    subject.run(BAD)
    assert subject.pid is not None
    assert is_gone(subject.pid)
    time.sleep(0.05)  # let the death be noticed, too
    assert digests(subject.run(GOOD)) == ["1"]


# Pipes


def test_a_worker_that_does_not_read_cannot_block_the_caller(fake_engine: FakeEngine) -> None:
    subject = fake_engine(f"{HELLO}\ntime.sleep(1000)", timeout=0.5)
    long = program(1, num_actions=20_000)  # a megabyte; a pipe holds 64 kilobytes
    assert [trace.ending for trace in subject.run_many([long, long])] == ["hung", "hung"]


def test_long_answers_cannot_block_the_worker(fake_engine: FakeEngine) -> None:
    subject = fake_engine(misbehaving("pass"))
    long = program(1, num_actions=20_000)
    assert [len(trace.steps) for trace in subject.run_many([long] * 10)] == [20_000] * 10


def test_a_flood_on_standard_error_is_drained_and_only_its_end_is_kept(
    fake_engine: FakeEngine,
) -> None:
    flood = 'sys.stderr.write("x" * 5_000_000 + "\\n" + "last\\n" * 30); sys.exit(1)'
    crashed = fake_engine(misbehaving(flood)).run(BAD)
    assert crashed.failure == "\n".join(["the worker exited with code 1", *["last"] * 20])


# Starting


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (
            "print('{\"protocol\": 7}')",
            "vllm@fake: the worker speaks protocol version 7 and this kvproof speaks 1; "
            "let both come from the same kvproof",
        ),
        (
            'print(\'{"python": "3.11"}\')',
            "vllm@fake: the worker names no protocol version; its first line is "
            '\'{"python": "3.11"}\'',
        ),
        (
            "print('Welcome!')",
            "vllm@fake: the worker names no protocol version; its first line is 'Welcome!'",
        ),
        (
            'print(\'{"protocol": 1, "error": "ImportError: no module cbor2"}\')',
            "vllm@fake: the engine cannot be loaded: ImportError: no module cbor2",
        ),
        (
            "import nonsense_module",
            "vllm@fake: the worker exited with code 1 when it was started: "
            "ModuleNotFoundError: No module named 'nonsense_module'",
        ),
    ],
)
def test_a_worker_that_cannot_be_used_is_refused_by_name_in_one_line(
    fake_engine: FakeEngine, script: str, message: str
) -> None:
    subject = fake_engine(script)
    for _ in range(2):
        with pytest.raises(CouldNotRun) as refused:
            subject.run(GOOD)
        assert str(refused.value) == message


def test_a_missing_interpreter_is_named(tmp_path: Path) -> None:
    engine = Engine("vllm@fake", tmp_path, tmp_path / "python", "focused")
    subject = EngineSubject(engine, "manager", DIALECTS["eager"])
    with subject, pytest.raises(CouldNotRun) as refused:
        subject.run(GOOD)
    expected = f"vllm@fake: {tmp_path}/python cannot be started: No such file or directory"
    assert str(refused.value) == expected


def test_a_worker_that_says_no_hello_is_not_waited_for_forever() -> None:
    command = WorkerCommand("silent", (sys.executable, "-c", "import time; time.sleep(1000)"))
    with pytest.raises(CouldNotRun, match=r"^silent: the worker did not start within 0\.3 s$"):
        Pipeline(command, timeout=10.0, start_timeout=0.3).submit({})


# Ending


def test_what_a_worker_started_dies_with_it(tmp_path: Path) -> None:
    script = """
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"],
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
print(child.pid, flush=True)
sys.stdin.read()
"""
    for end in (WorkerProcess.close, lambda worker: os.kill(worker.pid or 0, signal.SIGTERM)):
        worker = WorkerProcess(WorkerCommand("parent", (sys.executable, "-c", script)))
        line = worker.receive(time.monotonic() + 10)
        assert line is not None
        assert not isinstance(line, End)
        assert is_running(int(line.text))
        end(worker)
        assert is_gone(int(line.text))
        worker.close()
        worker.close()  # a second time does nothing


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process of this")
def test_a_worker_in_an_endless_loop_dies_with_the_kvproof_that_started_it(tmp_path: Path) -> None:
    endless = f"""import runpy, sys
runpy.run_path(sys.argv[2])["open_door"]()
from kvproof.engines.vllm.inside.leash import die_with_parent
die_with_parent()
{HELLO}
while True: pass
"""
    engine = Engine("vllm@fake", tmp_path, fake_python(tmp_path, endless), "focused")
    script = f"""
from pathlib import Path, PosixPath
from kvproof.engines.vllm.engine import Engine
from kvproof.subjects.worker import EngineSubject
from model.releases import DIALECTS
from model.manager.configuration import Configuration
from model.program import Program
subject = EngineSubject({engine!r}, "manager", DIALECTS["eager"])
subject._submit(Program(Configuration(), ()), "none")
print(subject.pid, flush=True)
subject.run(Program(Configuration(), ()))
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as kvproof:
        assert kvproof.stdout is not None
        worker = int(kvproof.stdout.readline())
        assert is_running(worker)
        kvproof.kill()
    assert is_gone(worker)


def test_an_exit_is_described_in_words() -> None:
    assert describe_exit(1) == "the worker exited with code 1"
    assert describe_exit(-11) == "the worker was killed by signal 11 (SIGSEGV)"
    assert describe_exit(-99) == "the worker was killed by signal 99"
