"""``kvproof replay``: run trace files on subjects."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from kvproof.commands.options import DialectOption, JsonOption, LoadOption, SubjectsOption, finish
from kvproof.engines.vllm.environment import Load
from kvproof.errors import CouldNotRun, EngineUnlike
from kvproof.reports.as_json import replay_json
from kvproof.reports.terminal import show_replayed
from kvproof.search.replay import not_replayed, replay, subjects_of
from kvproof.search.replayed import Replayed, verdict_of
from kvproof.subjects.names import dialect_named, is_checkout, open_subject
from kvproof.subjects.subject import Subject
from model.program import Level
from specs.casefile import CaseFile, read_case


def replay_command(
    trace: Annotated[list[Path], typer.Argument(help="Trace files.")],
    subject: SubjectsOption = None,
    dialect: DialectOption = None,
    json_output: JsonOption = False,
    load: LoadOption = "focused",
) -> None:
    """Replay traces: FIXED, FAILED or ERROR for each subject, those that it names by default."""
    if dialect is not None:
        dialect_named(dialect)
    files = [(path, read_case(path)) for path in trace]
    replayed = list(_replay_all(files, subject, dialect, load))
    finish(
        verdict_of(replayed),
        json_output,
        lambda: replay_json(replayed),
        lambda console: show_replayed(console, replayed),
    )


def _replay_all(
    files: list[tuple[Path, CaseFile]], names: list[str] | None, dialect: str | None, load: Load
) -> Iterator[Replayed]:
    with ExitStack() as stack:
        subjects = _Subjects(stack, load, dialect, trusted=names is not None)
        for path, trace in files:
            named = names or list(subjects_of(trace))
            if not named:
                raise CouldNotRun(f"{path} names no subject: name one with --subject")
            for name in named:
                subject = subjects.opened(name, trace.level)
                if isinstance(subject, CouldNotRun):
                    if names:
                        raise subject
                    # a subject of the trace's that this machine cannot have
                    yield not_replayed(path, trace, name, subject)
                    continue
                try:
                    yield replay(path, trace, subject, dialect)
                except EngineUnlike as error:
                    if names:
                        raise
                    yield not_replayed(path, trace, name, error)


@dataclass(frozen=True, slots=True)
class _Subjects:
    """Opens each subject once for each level; one that cannot be had is the reason why."""

    stack: ExitStack
    load: Load
    dialect: str | None
    trusted: bool
    """Whether the user named the subjects, and not a trace, which may come from anywhere: code in
    a folder runs only if the user names the folder."""
    known: dict[tuple[str, Level], Subject | CouldNotRun] = field(default_factory=dict)

    def opened(self, name: str, level: Level) -> Subject | CouldNotRun:
        if (name, level) not in self.known:
            self.known[name, level] = self._open(name, level)
        return self.known[name, level]

    def _open(self, name: str, level: Level) -> Subject | CouldNotRun:
        if not self.trusted and is_checkout(name):
            return CouldNotRun(f"the trace names a checkout; to run it, add --subject {name}")
        try:
            return self.stack.enter_context(open_subject(name, level, self.load, self.dialect))
        except CouldNotRun as error:
            return error
