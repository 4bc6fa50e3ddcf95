"""A leash: a process dies with the one that started it, even in an endless loop.

Where the leash cannot be had, a worker ends when its input does.
"""

import contextlib
import signal
import sys

PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    if sys.platform == "linux":
        with contextlib.suppress(ImportError, OSError, AttributeError):
            import ctypes  # noqa: PLC0415 - an interpreter may be built without it

            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
