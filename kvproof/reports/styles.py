"""The colours of verdicts."""

STYLES = {
    "clean": "green",
    "counterexample": "bold red",
    "incomplete": "yellow",
    "FIXED": "green",
    "FAILED": "bold red",
    "ERROR": "yellow",
}
