"""``kvproof prove``: the theorems, and the twins that must fail."""

from typing import Annotated

import typer

from kvproof.commands.options import JsonOption, finish
from kvproof.reports.as_json import proofs_json
from kvproof.reports.terminal import show_proofs
from kvproof.theorems.proving import run_proofs


def prove_command(
    only: Annotated[list[str] | None, typer.Option(help="One obligation; may be repeated.")] = None,
    json_output: JsonOption = False,
) -> None:
    """Prove the theorems on admission for every size, each beside a twin that must fail."""
    proofs = run_proofs(only or ())
    finish(
        proofs.verdict,
        json_output,
        lambda: proofs_json(proofs),
        lambda console: show_proofs(console, proofs),
    )
