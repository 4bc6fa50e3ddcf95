"""``kvproof diff``: two subjects in lockstep with each other."""

from typing import Annotated

import typer

from kvproof.commands.looking import conclude, findings_folder, seed_or_drawn
from kvproof.commands.options import JsonOption, LoadOption, OutOption, SeedOption, TimeOption
from kvproof.levels.pair import PairExaminer
from kvproof.reports.progress import counting
from kvproof.search.hunt import soak
from kvproof.subjects.names import open_subject

DIFF_PROGRAMS = 1_000


def diff_command(
    a: Annotated[str, typer.Argument(help="The first subject; programs are drawn for it.")],
    b: Annotated[str, typer.Argument(help="The second subject.")],
    seed: SeedOption = None,
    programs: Annotated[int | None, typer.Option(min=1, help="1000 if no --time is given.")] = None,
    time: TimeOption = None,
    out: OutOption = None,
    json_output: JsonOption = False,
    load: LoadOption = "focused",
) -> None:
    """Run two subjects in lockstep with each other."""
    folder = findings_folder(out)
    if programs is None and time is None:
        programs = DIFF_PROGRAMS
    with open_subject(a, load=load) as first, open_subject(b, load=load) as second:
        examiner = PairExaminer(first, second, first.dialect)
        with counting(f"diff {a} {b}", programs) as progress:
            outcome = soak(examiner, seed_or_drawn(seed), programs, time, progress=progress)
        outcome.subject = f"{first.name} {second.name}"
        outcome.other = "each other"
        outcome.notes = (*first.notes, *second.notes)
        conclude(outcome, folder, json_output, second.name)
