"""Reports: independent consumers of the same values."""
