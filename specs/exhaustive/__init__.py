"""Exhaustive search of small instances, breadth-first."""
