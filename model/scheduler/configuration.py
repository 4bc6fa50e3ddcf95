"""The model's configuration of a setup: what the two levels share."""

from model.manager.configuration import Configuration
from model.scheduler.setup import SchedulerSetup


def configuration_of(setup: SchedulerSetup) -> Configuration:
    """The same sizes and modes, for the caches that the model has (full attention, HiSparse)."""
    return Configuration(
        block_size=setup.block_size,
        num_blocks=setup.num_blocks,
        num_host_blocks=setup.num_host_blocks if setup.hisparse else 0,
        num_resident_groups=setup.num_resident_groups,
        hot_blocks=setup.hot_blocks,
        max_model_len=setup.max_model_len,
        max_num_batched_tokens=setup.max_num_batched_tokens,
        prefix_caching=setup.prefix_caching,
        async_scheduling=setup.async_scheduling,
        policy=setup.policy,
        watermark_blocks=setup.watermark_blocks,
        full_sequence_must_fit=setup.reserve_full_isl,
    )
