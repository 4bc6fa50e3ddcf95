"""Dialects: how releases and proposals differ, one named switch per rule.

Which release and which proposal speaks how is in ``model/releases.py``; ``specs/README.md`` lists
every switch with its source and the action that shows it.
"""

from dataclasses import dataclass
from typing import Literal

from model.program import Level

Moment = Literal["allocation", "end_of_step"]
"""``allocation``: inside ``cache_blocks``, the last act of a request's own allocation (and of an
asynchronous output). ``end_of_step``: once per scheduled request, after all allocations."""


@dataclass(frozen=True, slots=True)
class Waiver:
    """A rule that is broken by design, and so not judged."""

    rule: str
    reason: str
    levels: tuple[Level, ...] = ("manager",)
    """Where it is not judged."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """The switches of the reference model."""

    name: str

    adopt_at: Literal["commit"] | Moment
    """When a hit's GPU copies are pinned: on committing the hit (before any block is popped), at
    the end of the same allocation (#59282), or after all allocations of the step."""

    residency_hook: Moment
    """When write-backs are planned and clean pages unpinned."""

    charge_copies: bool
    """Whether admission charges the free copies that a hit would pin (#57457)."""

    host_best_effort: bool
    """Whether a page that finds no host block keeps a null entry instead of the allocation being
    refused."""

    publish_prefix: bool
    """Whether the durable prefix of a pending publication is published, or nothing until all of
    it is durable."""

    publish_after_end: bool
    """Whether a finished or aborted request with pending writes leaves a lease on its host pages
    and is published when the last write completes."""

    unpin_step_tail_first: bool
    """The order in which one residency update unpins clean pages."""

    unpin_release_tail_first: bool
    """The order in which a release unpins clean pages."""

    copies_behind_release: bool
    """Whether the copies that a release unpins are queued behind everything else that it frees
    (#59283) instead of before it."""

    hot_when_window_full: bool
    """Whether a request asks for its hot region when it holds as many resident pages as admission
    reserved, not only when the pool runs low."""

    resident_overlay: bool
    """Whether the block table is append-only with residency changes beside it, or is rewritten in
    place."""

    null_block_counted: bool
    """Whether touching and freeing moves the null block's reference count."""

    residency_updates: bool
    """Whether workers are sent residency changes of scheduled requests, or whole block
    tables of requests that lost a page."""

    reclaims_host_blocks: bool
    """Whether a pending write that is its host block's last reference counts as pending
    reclamation."""

    zero_tokens_with_hit: bool
    """Whether an allocation of no new tokens is allowed with a local hit, or raises."""

    common_prefix_counted: bool
    """Whether the common-prefix query counts shared blocks or answers 0."""

    startup_full_length: bool
    """Whether the start-up check asks for the resident pages of the longest request, not
    only of the tokens in flight."""

    startup_checks_host: bool
    """Whether the start-up check asks for host blocks: the longest request and two more."""

    waivers: tuple[Waiver, ...] = ()
    """Rules that this dialect breaks by design, each with the reason."""

    known_defects: tuple[str, ...] = ()
    """Defects that whoever speaks it is known to have, by their id in ``specs/README.md``."""

    def waived(self, level: Level) -> dict[str, str]:
        """Rules that are not judged at a level, each with the reason."""
        return {w.rule: w.reason for w in self.waivers if level in w.levels}
