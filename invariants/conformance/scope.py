"""What a log must be about to be played: the model's configuration of an engine, or why not."""

from invariants.conformance.records import Header
from model.groups import Kind, kinds_of
from model.manager.configuration import Configuration, problem_of

FULL_ATTENTION = ("FullAttentionSpec", "MLAAttentionSpec")
KINDS: dict[str, Kind] = {
    "HISPARSE_SOURCE": "host",
    "HISPARSE_INDEXER": "indexer",
    "HiSparseResidentSpec": "resident",
    "HiSparseHotSpec": "hot",
}
"""What a group holds, by its specification, or by its role if that says it."""


class BeyondModelError(Exception):
    """The model ends here: what the engine did is nothing that it knows."""


def configuration_of(header: Header) -> Configuration:
    """Raises BeyondModelError."""
    kinds = [group.kind for group in header.groups]
    hisparse = header.num_host_blocks > 0
    groups = _resident_groups(header) if hisparse else 0
    if not hisparse and (len(kinds) != 1 or kinds[0] not in FULL_ATTENTION):
        raise BeyondModelError(f"the model has no cache of the groups {', '.join(kinds)}")
    sizes = {group.block_size for group in header.groups}
    size = header.groups[0].block_size
    if len(sizes) != 1 or header.hash_block_size not in (None, size) or size < 1:
        raise BeyondModelError("the model has one block size for all groups and hashes")
    if header.features:
        raise BeyondModelError(f"the model does not have {', '.join(header.features)}")
    configuration = Configuration(
        block_size=size,
        num_blocks=header.num_blocks,
        num_host_blocks=header.num_host_blocks,
        num_resident_groups=groups or 1,
        hot_blocks=header.groups[-1].hot_blocks if hisparse else 1,
        max_model_len=header.max_model_len,
        max_num_batched_tokens=header.max_in_flight_tokens,
        prefix_caching=header.prefix_caching,
        watermark_blocks=header.watermark_blocks,
    )
    problem = problem_of(configuration)
    if problem is not None:
        raise BeyondModelError(problem)
    return configuration


def _resident_groups(header: Header) -> int:
    """Resident groups of a HiSparse engine whose groups are those that the model has."""
    kinds = [group.kind for group in header.groups]
    held = tuple([KINDS.get(g.kind) or KINDS.get(g.role or "") for g in header.groups])
    groups = held.count("resident")
    hot = {header.groups[row].hot_blocks for row, kind in enumerate(held) if kind == "hot"}
    if groups < 1 or held != kinds_of("hisparse", groups) or len(hot) != 1:
        raise BeyondModelError(f"the model has no HiSparse cache of the groups {', '.join(kinds)}")
    return groups
