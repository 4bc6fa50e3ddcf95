"""The table of the design."""

from kvproof.gate.table import expected_column
from model.releases import DIALECTS


def test_every_dialect_has_a_column_to_compare_with() -> None:
    assert all(len(expected_column(name) or ()) == 10 for name in DIALECTS)
