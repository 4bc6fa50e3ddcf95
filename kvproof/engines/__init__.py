"""Engines under test, a folder each."""
