"""A picture of a deployment: what becomes of a hit, and how many copies it keeps.

Drawn with matplotlib, an optional dependency (``kvproof[plot]``).
"""

from __future__ import annotations

import io
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from kvproof.errors import CouldNotRun
from kvproof.reports.bounds import rows_sentence, shown, summary
from kvproof.search.findings import check_writable
from kvproof.theorems.deployment import Bounds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = (".html", ".png", ".svg")
COLOURS = {"refused": "#d9d9d9", "crash": "#e34a33", "admitted": "#a1d99b"}
"""Told apart in grey too; a crash is hatched as well."""
STYLE = "body{font:15px sans-serif;max-width:60em;margin:2em auto}td,th{padding:.2em .8em;"
STYLE += "text-align:left;vertical-align:top;border-bottom:1px solid #ddd}svg{max-width:100%}"


def check_plot(path: Path, bounds: Bounds) -> None:
    """Raises ``CouldNotRun`` where nothing can be drawn, or not there."""
    if path.suffix.lower() not in FORMATS:
        raise CouldNotRun(f"--plot {path}: name a file that ends in {', '.join(FORMATS)}")
    if not bounds.rows:
        raise CouldNotRun("--plot shows what becomes of a hit: say of how many --prefix-pages")
    check_writable(path.parent, "--plot")
    if not path.parent.is_dir():
        raise CouldNotRun(f"--plot: there is no folder {path.parent}")


def write_plot(path: Path, bounds: Bounds) -> None:
    """An HTML page with the picture and all numbers, or the picture alone.

    Raises ``CouldNotRun`` without matplotlib, or where the file cannot be written.
    """
    check_plot(path, bounds)
    figure, kind = draw(bounds), path.suffix.lower()
    data = page(bounds, figure).encode() if kind == ".html" else image(figure, kind[1:])
    try:
        path.write_bytes(data)
    except OSError as error:
        raise CouldNotRun(f"cannot write {path}: {error.strerror}; name another file") from error


def draw(bounds: Bounds) -> Figure:
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - an optional dependency
        from matplotlib.ticker import MaxNLocator  # noqa: PLC0415
    except ImportError as error:
        raise CouldNotRun("--plot needs matplotlib: install kvproof[plot]") from error
    figure = Figure(figsize=(9, 4), layout="constrained")
    axes = figure.subplots()
    _shade(axes, bounds)
    kept = [row for row in bounds.rows if row.outcome == "admitted"]
    free, d = [row.free for row in kept], bounds.deployment
    axes.plot(free, [row.copies for row in kept], "o-", color="#08306b", ms=4, label="copies kept")
    if d.resident_groups > 1:
        pages = [row.pages for row in kept]
        axes.plot(free, pages, "s--", color="#54278f", ms=4, label="pages kept")
    axes.set_xlabel("free blocks of the GPU pool")
    axes.set_ylabel(f"kept, of {d.copies} copies")
    axes.set_ylim(-0.04 * d.copies, 1.08 * d.copies)
    axes.set_title(f"{d.dialect.name}: a hit of {d.prefix_pages} pages, in {d.blocks} blocks")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def _shade(axes: Axes, bounds: Bounds) -> None:
    """Colour each count of free blocks by what becomes of the hit there."""
    first, last = bounds.rows[0].free, bounds.rows[-1].free
    least = int(bounds.numbers["hit_admitted"].value or 0)
    crash_to = bounds.numbers["crash_to"].value
    safe = least if crash_to is None else crash_to + 1
    spans = (("refused", first, least), ("crash", least, safe), ("admitted", safe, last + 1))
    for outcome, start, stop in spans:
        begin, end = max(start, first), min(stop, last + 1)
        if begin < end:
            axes.axvspan(
                begin - 0.5,
                end - 0.5,
                facecolor=COLOURS[outcome],
                hatch="//" if outcome == "crash" else None,
                label=outcome,
            )
    axes.set_xlim(first - 0.5, last + 0.5)


def image(figure: Figure, kind: str) -> bytes:
    """Equal numbers give equal bytes: no date, and text stays text."""
    from matplotlib import rc_context  # noqa: PLC0415

    drawn = io.BytesIO()
    metadata = {"Date": None} if kind == "svg" else {}
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "kvproof"}):
        figure.savefig(drawn, format=kind, dpi=150, metadata=metadata)
    return drawn.getvalue()


def page(bounds: Bounds, figure: Figure) -> str:
    svg = image(figure, "svg").decode()
    svg = svg[svg.index("<svg") :]
    numbers = "".join(
        f"<tr><td>{escape(name)}<td>{escape(shown(bound))}<td>{escape(bound.sentence)}"
        f"<td><code>kvproof prove --only {escape(bound.theorem)}</code>"
        for name, bound in bounds.numbers.items()
    )
    findings = "".join(f"<li>{escape(finding)}" for finding in bounds.findings)
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>kvproof bounds</title>"
        f"<style>{STYLE}</style><h1>kvproof bounds: {escape(bounds.verdict)}</h1>"
        f"<p>{escape(summary(bounds.deployment))}</p><ul>{findings}</ul>"
        f"{svg}<p>{escape(rows_sentence(bounds.deployment))}</p>"
        f"<table><tr><th>number<th>value<th>meaning<th>proof{numbers}</table></html>\n"
    )
