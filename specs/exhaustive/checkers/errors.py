"""The one error of a model checker."""


class CheckerError(Exception):
    """A checker could not run, or its answer cannot be read: why, in one line."""
