"""``kvproof table``: the pages that a hit adopts, by the blocks that are free."""

from contextlib import ExitStack

from kvproof.commands.options import JsonOption, LoadOption, SubjectsOption, finish
from kvproof.gate.table import EXPECTED, measure
from kvproof.reports.as_json import table_json
from kvproof.reports.terminal import show_table
from kvproof.subjects.names import open_subject


def table_command(
    subject: SubjectsOption = None, json_output: JsonOption = False, load: LoadOption = "focused"
) -> None:
    """Pages adopted by a hit, by free blocks: the table of the proposals."""
    names = subject or [f"reference:{policy}" for policy in EXPECTED]
    with ExitStack() as stack:
        opened = [stack.enter_context(open_subject(name, load=load)) for name in names]
        cells = measure(opened)
        notes = [note for each in opened for note in each.notes]
    finish(
        "clean",
        json_output,
        lambda: table_json(cells, notes),
        lambda console: show_table(console, cells, notes),
    )
