"""Whether the package index has a vLLM that is newer than the newest row of ``model/releases.py``.

    uv run python scripts/newest_release.py >> "$GITHUB_OUTPUT"

Prints ``newest_row=…`` and ``newer=…``, which is empty if there is none. Asks the index that pip
and uv are configured to use. Pre-releases and yanked releases do not count. Exit code 2: it could
not be asked.
"""

import sys
from collections.abc import Iterable

from packaging.version import Version

from kvproof.engines.vllm.download import published_versions
from kvproof.errors import CouldNotRun
from model.releases import NEWEST


def newer(row: str, published: Iterable[Version]) -> str:
    """The newest final release after a row's; empty if there is none."""
    later = [v for v in published if v > Version(row) and not (v.is_prerelease or v.is_devrelease)]
    return str(max(later, default=""))


def main() -> int:
    try:
        published = published_versions()
    except CouldNotRun as error:
        print(error, file=sys.stderr)
        return 2
    print(f"newest_row={NEWEST.version}")
    print(f"newer={newer(NEWEST.version, published)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
