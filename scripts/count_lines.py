"""Lines of Python by layer, of the working tree or of commits, side by side.

    uv run python scripts/count_lines.py [COMMIT ...]

Counts every line, blank lines and comments too. Tests are the last row and not in the sum.
"""

import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TESTS = "tests"


def git(*arguments: str) -> str:
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def lines_now() -> Counter[str]:
    """Lines by top folder, of the files that git knows or would add."""
    names = git("ls-files", "--cached", "--others", "--exclude-standard", "*.py").splitlines()
    present = [name for name in names if (ROOT / name).is_file()]
    return _sum({name: (ROOT / name).read_text(encoding="utf-8") for name in present})


def lines_at(commit: str) -> Counter[str]:
    """Lines by top folder, as they were committed."""
    names = git("ls-tree", "-r", "--name-only", commit).splitlines()
    return _sum({n: git("show", f"{commit}:{n}") for n in names if n.endswith(".py")})


def _sum(texts: dict[str, str]) -> Counter[str]:
    lines: Counter[str] = Counter()
    for name, text in texts.items():
        lines[name.split("/")[0]] += len(text.splitlines())
    return lines


def table(columns: dict[str, Counter[str]]) -> str:
    """One row a folder, one column a tree; what is not a test is summed."""
    folders = sorted({folder for lines in columns.values() for folder in lines} - {TESTS})
    rows = [(folder, [lines[folder] for lines in columns.values()]) for folder in folders]
    totals = [lines.total() - lines[TESTS] for lines in columns.values()]
    rows += [("outside tests", totals), (TESTS, [lines[TESTS] for lines in columns.values()])]
    head = ["folder".ljust(14), *(name[:12].rjust(14) for name in columns)]
    body = [[name.ljust(14), *(f"{n:,}".rjust(14) for n in numbers)] for name, numbers in rows]
    return "\n".join("".join(cells) for cells in (head, *body))


if __name__ == "__main__":
    commits = sys.argv[1:]
    print(table({commit: lines_at(commit) for commit in commits} | {"now": lines_now()}))
