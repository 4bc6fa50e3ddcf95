"""The peak need of a request, measured: run it alone in ample pools and watch."""

from dataclasses import replace
from functools import lru_cache

from model.dialect import Dialect
from model.manager.actions import Admit, Arrive, CompleteTransfers, EndStep, Extend
from model.manager.configuration import Configuration
from model.manager.session import Session
from model.reference import ReferenceAllocator

AMPLE_BLOCKS = 64
"""Blocks per page of the longest request: more than all groups together can hold."""


@lru_cache(maxsize=4096)
def peak_blocks(configuration: Configuration, dialect: Dialect, tokens: int) -> tuple[int, int]:
    """Most (GPU, host) blocks that a cold request of so many tokens holds until all are computed.

    Its writes complete at once. Measured on the reference, never computed by the predictor.
    """
    ample = configuration.max_pages * AMPLE_BLOCKS
    roomy = replace(
        configuration,
        num_blocks=ample,
        num_host_blocks=ample if configuration.hisparse else 0,
        watermark_blocks=0,
    )
    session = Session(roomy, ReferenceAllocator(roomy, dialect))
    session.do(Arrive(prompt=min(tokens, configuration.max_model_len - 1)))
    peak_gpu = peak_host = 0
    action: Admit | Extend = Admit(0, tokens)
    while session.requests and session.requests[0].computed < tokens:
        session.do(action)
        snapshot = session.snapshot()
        peak_gpu = max(peak_gpu, ample - 1 - len(snapshot.gpu.free))
        if snapshot.host is not None:
            peak_host = max(peak_host, ample - 1 - len(snapshot.host.free))
        session.do(EndStep())
        for worker in range(configuration.num_workers):
            session.do(CompleteTransfers(worker, ample))
        action = Extend(0, tokens)
    return peak_gpu, peak_host
