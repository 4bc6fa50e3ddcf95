"""``kvproof export``: a case file as a test that stands alone."""

from pathlib import Path
from typing import Annotated

import typer

from kvproof.engines.vllm.export.case import export_test
from kvproof.errors import CouldNotRun
from kvproof.reports.streams import write_file, write_out
from specs.casefile import read_case


def export_command(
    trace: Annotated[Path, typer.Argument(help="A trace file.")],
    out: Annotated[
        Path | None, typer.Option(help="File to write; standard output if none.")
    ] = None,
) -> None:
    """Write a stand-alone pytest file that reproduces a trace with vLLM's own classes."""
    text = export_test(read_case(trace))
    if out is None:
        write_out(text)
    else:
        if out.exists():
            raise CouldNotRun(f"{out} is there already; remove it, or name another file")
        write_file(out, text)
