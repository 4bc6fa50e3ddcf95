"""Run the worker on a leash: it dies with the kvproof that started it, even in an endless loop.

The engine's own interpreter executes this file by its path, so that nothing else of this package
is imported there. Where the leash cannot be had, the worker ends when its input does.
"""

import contextlib
import signal
import sys

from kvproof.engines.vllm.inside.worker import main

PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    if sys.platform == "linux":
        with contextlib.suppress(ImportError, OSError, AttributeError):
            import ctypes  # noqa: PLC0415 - an interpreter may be built without it

            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


if __name__ == "__main__":
    die_with_parent()
    main()
