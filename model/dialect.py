"""Dialects: how releases and proposals differ, one named switch per rule.

Source of the rows: the releases themselves, vLLM 0.30.0 to 0.33.0, and the proposals #57457,
#59282 and #59283. ``specs/README.md`` lists every row with the action that shows it.
"""

from dataclasses import dataclass, replace
from typing import Literal

Moment = Literal["allocation", "end_of_step"]
"""``allocation``: inside ``cache_blocks``, the last act of a request's own allocation (and of an
asynchronous output). ``end_of_step``: once per scheduled request, after all allocations."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """The switches of the reference model."""

    name: str

    adopt_at: Literal["commit"] | Moment
    """When a hit's GPU copies are pinned: on committing the hit (before any block is popped), at
    the end of the same allocation (#59282, 0.31.0), or after all allocations of the step
    (0.32.0)."""

    residency_hook: Moment
    """When write-backs are planned and clean pages unpinned (end of the step from 0.32.0)."""

    charge_copies: bool
    """Whether admission charges the free copies that a hit would pin (#57457)."""

    host_best_effort: bool
    """Whether a page that finds no host block keeps a null entry (0.30.0) instead of the
    allocation being refused (0.31.0)."""

    publish_prefix: bool
    """Whether the durable prefix of a pending publication is published (0.31.0), or nothing until
    all of it is durable."""

    publish_after_end: bool
    """Whether a finished or aborted request with pending writes leaves a lease on its host pages
    and is published when the last write completes (0.31.0)."""

    unpin_step_tail_first: bool
    """The order in which one residency update unpins clean pages (tail first from 0.31.0)."""

    unpin_release_tail_first: bool
    """The order in which a release unpins clean pages (tail first from 0.31.0)."""

    copies_behind_release: bool
    """Whether the copies that a release unpins are queued behind everything else that it frees
    (#59283) instead of before it."""

    hot_when_window_full: bool
    """Whether a request asks for its hot region when it holds as many resident pages as admission
    reserved (0.31.0), not only when the pool runs low."""

    resident_overlay: bool
    """Whether the block table is append-only with residency changes beside it (0.32.0), or is
    rewritten in place."""

    null_block_counted: bool
    """Whether touching and freeing moves the null block's reference count (up to 0.32.0)."""

    residency_updates: bool
    """Whether workers are sent residency changes of scheduled requests (0.32.0), or whole block
    tables of requests that lost a page."""

    reclaims_host_blocks: bool
    """Whether a pending write that is its host block's last reference counts as pending
    reclamation (0.31.0)."""

    zero_tokens_with_hit: bool
    """Whether an allocation of no new tokens is allowed with a local hit (0.31.0), or raises."""

    common_prefix_counted: bool
    """Whether the common-prefix query counts shared blocks (up to 0.31.0) or answers 0."""

    startup_full_length: bool
    """Whether the start-up check asks for the resident pages of the longest request (0.30.0), not
    only of the tokens in flight."""

    startup_checks_host: bool
    """Whether the start-up check asks for host blocks: the longest request and two more
    (0.31.0)."""

    by_design: tuple[tuple[str, str], ...] = ()
    """Rules that this dialect breaks by design, each with the reason."""

    known_defects: tuple[str, ...] = ()
    """Defects of this release that are known, by their id in ``specs/README.md``."""


_VLLM_0_30_0 = Dialect(
    name="vllm-0.30.0",
    adopt_at="commit",
    residency_hook="allocation",
    charge_copies=False,
    host_best_effort=True,
    publish_prefix=False,
    publish_after_end=False,
    unpin_step_tail_first=False,
    unpin_release_tail_first=False,
    copies_behind_release=False,
    hot_when_window_full=False,
    resident_overlay=False,
    null_block_counted=True,
    residency_updates=False,
    reclaims_host_blocks=False,
    zero_tokens_with_hit=False,
    common_prefix_counted=True,
    startup_full_length=True,
    startup_checks_host=False,
    by_design=(
        ("I8", "0.30.0 publishes all pages of a registration or none, and nothing after the end"),
        ("I11", "0.30.0 unpins pages head first"),
        ("I14", "0.30.0 gives host blocks on a best-effort basis"),
    ),
    known_defects=("K2", "K12"),
)

_VLLM_0_31_0 = replace(
    _VLLM_0_30_0,
    name="vllm-0.31.0",
    adopt_at="allocation",
    host_best_effort=False,
    publish_prefix=True,
    publish_after_end=True,
    unpin_step_tail_first=True,
    unpin_release_tail_first=True,
    hot_when_window_full=True,
    reclaims_host_blocks=True,
    zero_tokens_with_hit=True,
    startup_full_length=False,
    startup_checks_host=True,
    by_design=(),
    known_defects=("K2", "K5"),
)

_VLLM_0_32_0 = replace(
    _VLLM_0_31_0,
    name="vllm-0.32.0",
    adopt_at="end_of_step",
    residency_hook="end_of_step",
    resident_overlay=True,
    residency_updates=True,
    common_prefix_counted=False,
)

_VLLM_0_33_0 = replace(_VLLM_0_32_0, name="vllm-0.33.0", null_block_counted=False)

_EAGER = replace(_VLLM_0_30_0, name="eager")
_CHARGED = replace(_VLLM_0_30_0, name="charged", charge_copies=True)
_DEFERRED = replace(
    _VLLM_0_30_0,
    name="deferred",
    adopt_at="allocation",
    unpin_step_tail_first=True,
    unpin_release_tail_first=True,
    by_design=tuple(rule for rule in _VLLM_0_30_0.by_design if rule[0] != "I11"),
)
_DEFERRED_ORDERED = replace(_DEFERRED, name="deferred-ordered", copies_behind_release=True)

DIALECTS: dict[str, Dialect] = {
    dialect.name: dialect
    for dialect in (
        _EAGER,
        _CHARGED,
        _DEFERRED,
        _DEFERRED_ORDERED,
        _VLLM_0_30_0,
        _VLLM_0_31_0,
        _VLLM_0_32_0,
        _VLLM_0_33_0,
    )
}
