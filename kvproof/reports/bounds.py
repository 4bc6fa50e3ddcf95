"""The numbers of a deployment, for people and as JSON."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from kvproof.reports.styles import STYLES
from kvproof.theorems.deployment import Bound, Bounds, Deployment

OUTCOME_STYLES = {"refused": "yellow", "admitted": "green", "crash": "bold red"}


def bounds_json(bounds: Bounds) -> dict[str, Any]:
    """One flat object: each number by its name, with its theorem and sentence."""
    data: dict[str, Any] = {
        "verdict": bounds.verdict,
        "findings": list(bounds.findings),
        "deployment": deployment_json(bounds.deployment),
    }
    for name, bound in bounds.numbers.items():
        data[name] = {
            "value": bound.value,
            "theorem": bound.theorem,
            "sentence": bound.sentence,
        }
    if bounds.rows:
        data["by_free_blocks"] = {
            "value": [
                {
                    "free": row.free,
                    "outcome": row.outcome,
                    "copies_kept": row.copies,
                    "pages_kept": row.pages,
                }
                for row in bounds.rows
            ],
            "theorem": bounds.rows_theorem,
            "sentence": rows_sentence(bounds.deployment),
        }
    return data


def deployment_json(d: Deployment) -> dict[str, Any]:
    return {
        "blocks": d.blocks,
        "hot": d.hot,
        "block_size": d.block_size,
        "max_model_len": d.max_model_len,
        "max_in_flight": d.max_in_flight,
        "asynchronous": d.asynchronous,
        "resident_groups": d.resident_groups,
        "dialect": d.dialect.name,
        "watermark": d.watermark,
        "prompt_tokens": d.prompt_tokens,
        "prefix_pages": d.prefix_pages,
        "copies": d.copies,
        "behind": d.behind,
    }


def rows_sentence(d: Deployment) -> str:
    behind = f", with other free blocks behind them: {d.behind}" if d.behind else ""
    return (
        f"What becomes of the hit at each count of free blocks, how many of its {d.copies} free "
        f"copies survive its own pops, and how many of its {d.prefix_pages} pages are read from "
        f"them; one release left the copies last in the queue{behind}."
    )


def summary(d: Deployment) -> str:
    steps = "two steps" if d.asynchronous else "one step"
    return (
        f"{d.dialect.name}: {d.blocks} blocks of {d.block_size} tokens, {d.resident_groups} "
        f"resident group{'s' if d.resident_groups > 1 else ''}, hot region of {d.hot}; requests of "
        f"up to {d.max_model_len} tokens, {d.max_in_flight} in flight in {steps}; a prompt of "
        f"{d.prompt_tokens} tokens"
    )


def show_bounds(console: Console, bounds: Bounds) -> None:
    console.print(Text(summary(bounds.deployment)), soft_wrap=True)
    numbers = Table("number", "value", "theorem", "meaning")
    for name, bound in bounds.numbers.items():
        numbers.add_row(name, shown(bound), bound.theorem, Text(bound.sentence))
    console.print(numbers)
    if bounds.rows:
        _show_rows(console, bounds)
    for finding in bounds.findings:
        console.print(Text(finding, "yellow"), soft_wrap=True)
    verdict = Text(bounds.verdict, STYLES[bounds.verdict])
    if not bounds.findings:
        verdict.append(f"  {bounds.deployment.blocks} blocks are enough", "default")
    console.print(verdict)


def _show_rows(console: Console, bounds: Bounds) -> None:
    console.print(Text(f"{rows_sentence(bounds.deployment)} Theorem: {bounds.rows_theorem}"))
    rows = Table("free blocks", "hit", "copies kept", "pages kept")
    d = bounds.deployment
    for row in bounds.rows:
        kept = (f"{row.copies}/{d.copies}", f"{row.pages}/{d.prefix_pages}")
        cells = kept if row.outcome == "admitted" else ("", "")
        rows.add_row(str(row.free), Text(row.outcome, OUTCOME_STYLES[row.outcome]), *cells)
    console.print(rows)


def shown(bound: Bound) -> str:
    if bound.value is None:
        return "none"
    if isinstance(bound.value, bool):
        return "yes" if bound.value else "no"
    return str(bound.value)
