"""Exhaustive search of small instances, breadth-first over canonical states."""
