"""Theorems on admission: claims by theme, and the table of obligations."""
