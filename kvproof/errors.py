"""The error that ends a command with exit code 2."""

from __future__ import annotations


class CouldNotRun(Exception):  # noqa: N818 - it names the outcome, as the exit codes do
    """Nothing was checked, and the user can do something about it.

    The message is one line in plain words: what is wrong, then what to do.
    """


class EngineUnlike(CouldNotRun):
    """The engine lacks something that kvproof needs to look at it: no program can be run on it."""
