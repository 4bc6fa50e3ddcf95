"""``kvproof record``: hand out the module that records a live vLLM."""

from pathlib import Path
from typing import Annotated

import typer

from kvproof.engines.vllm.inside import recorder as recorder_module
from kvproof.errors import CouldNotRun
from kvproof.reports.streams import write_line
from kvproof.search.findings import VERSION

MODULE = "kvproof_recorder"
PLUGIN_GROUP = "vllm.general_plugins"
"""The entry points that vLLM loads in each of its processes."""


def write_recorder(place: Path) -> list[Path]:
    """Write the module, as a file if ``place`` ends in ``.py``, else into a folder as a plugin.

    A folder also gets the few lines of metadata by which vLLM finds a plugin on its path. Files
    of earlier versions are replaced. Raises CouldNotRun.
    """
    source = Path(recorder_module.__file__).read_text(encoding="utf-8")
    if place.suffix == ".py":
        files = {place: source}
    else:
        information = place / f"{MODULE}-{VERSION}.dist-info"
        metadata = f"Metadata-Version: 2.1\nName: {MODULE}\nVersion: {VERSION}\n"
        plugin = f"[{PLUGIN_GROUP}]\n{MODULE} = {MODULE}:register\n"
        files = {
            place / f"{MODULE}.py": source,
            information / "METADATA": metadata,
            information / "entry_points.txt": plugin,
        }
    try:
        for path, text in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CouldNotRun(f"cannot write {place}: {error.strerror}") from error
    return list(files)


def record_command(
    out: Annotated[
        Path, typer.Option(help="A folder, for use as a plugin of vLLM, or one file NAME.py.")
    ] = Path("kvproof-recorder"),
) -> None:
    """Write the module that records the allocator's calls of a live vLLM."""
    module = write_recorder(out)[0]
    write_line(f"{module} is written; load it into vLLM in one of these ways:")
    if out.suffix != ".py":
        variable = recorder_module.VARIABLE
        write_line(f"  {variable}=calls.ndjson PYTHONPATH={out.absolute()} vllm serve …")
    write_line(f"  import {module.stem}; {module.stem}.start('calls.ndjson')")
    write_line("then: kvproof check-trace calls.ndjson")
