"""What a process of the prover does first, before it imports what it is to prove."""

import signal

from kvproof.engines.vllm.inside.leash import die_with_parent
from kvproof.engines.vllm.inside.start import OWN, open_door


def begin() -> None:
    """It ends with the process that started it, which alone is interrupted."""
    open_door(OWN)
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
