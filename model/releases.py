"""The releases of vLLM that are supported: one row each, and nothing else says what one is.

A row is the release's dialect, with what its rules leave unjudged by design and the defects that
it is known to have, and what it cannot do. Everything that goes by releases is derived from here:
subjects, tables, labels of defects, the corpus' ranges, tests, the CI matrix.
"""

from dataclasses import dataclass, replace
from typing import Any

from model.dialect import Dialect, Waiver

RELEASE_PREFIX = "vllm-"
"""Dialects of releases are named so, with the version."""


@dataclass(frozen=True, slots=True)
class Release:
    """A release of vLLM."""

    version: str
    dialect: Dialect
    """Named after the version. Its waivers and known defects are the release's, at both levels."""
    cannot: tuple[tuple[str, str], ...] = ()
    """Goals of the scheduler level that it cannot meet, with the reason: those that no switch of
    the dialect tells."""


def row(
    version: str, like: Dialect, cannot: tuple[tuple[str, str], ...] = (), **changes: Any
) -> Release:
    """A release that speaks like another one, but for these fields of the dialect."""
    return Release(version, replace(like, name=f"{RELEASE_PREFIX}{version}", **changes), cannot)


_NO_LOAD_WAITS = (
    "load deferred behind steps in flight",
    "no load waits for the steps in flight: that came with 0.33.0",
)


def _walks_all_pages(version: str) -> Waiver:
    return Waiver("I18", f"{version} walks all pages of a request in every step", ("scheduler",))


_UNJUDGED = (
    Waiver("I8", "0.30.0 publishes all pages of a registration or none, and nothing after the end"),
    Waiver("I11", "0.30.0 unpins pages head first"),
    Waiver("I14", "0.30.0 gives host blocks on a best-effort basis"),
)

_0_30_0 = Release(
    "0.30.0",
    Dialect(
        name=f"{RELEASE_PREFIX}0.30.0",
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
        waivers=(*_UNJUDGED, _walks_all_pages("0.30.0")),
        known_defects=(
            "K1", "K2", "K3", "K4", "K5", "K6", "K7", "K8", "K9", "K10", "K11", "K12",
        ),
    ),
    (_NO_LOAD_WAITS,),
)  # fmt: skip

_0_31_0 = row(
    "0.31.0",
    _0_30_0.dialect,
    (_NO_LOAD_WAITS,),
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
    waivers=(_walks_all_pages("0.31.0"),),
    known_defects=("K2", "K3", "K4", "K5", "K6", "K7", "K8", "K9", "K10", "K13"),
)

_0_32_0 = row(
    "0.32.0",
    _0_31_0.dialect,
    (_NO_LOAD_WAITS,),
    adopt_at="end_of_step",
    residency_hook="end_of_step",
    resident_overlay=True,
    residency_updates=True,
    common_prefix_counted=False,
    waivers=(),
)

_0_33_0 = row(
    "0.33.0",
    _0_32_0.dialect,
    null_block_counted=False,
    known_defects=("K2", "K3", "K4", "K5", "K6", "K7", "K8", "K9", "K13"),
)

RELEASES = (_0_30_0, _0_31_0, _0_32_0, _0_33_0)
"""Oldest first."""

OLDEST, NEWEST = RELEASES[0], RELEASES[-1]
VERSIONS = tuple(release.version for release in RELEASES)

CANARY_DEFECT = "K1"
"""What a gate must see, or it sees nothing."""
CANARIES = tuple(r for r in RELEASES if CANARY_DEFECT in r.dialect.known_defects)
SOUND = tuple(release for release in RELEASES if release not in CANARIES)
"""Those of which a gate is expected to be clean."""

_EAGER = replace(OLDEST.dialect, name="eager", waivers=_UNJUDGED, known_defects=("K2", "K12"))
_CHARGED = replace(_EAGER, name="charged", charge_copies=True)
_DEFERRED = replace(
    _EAGER,
    name="deferred",
    adopt_at="allocation",
    unpin_step_tail_first=True,
    unpin_release_tail_first=True,
    waivers=tuple(waiver for waiver in _UNJUDGED if waiver.rule != "I11"),
)
_DEFERRED_ORDERED = replace(_DEFERRED, name="deferred-ordered", copies_behind_release=True)

PROPOSALS = (_EAGER, _CHARGED, _DEFERRED, _DEFERRED_ORDERED)
"""What was proposed for the first release: ``eager`` is that release's own allocator, then #57457,
#59282 and #59283."""

DIALECTS: dict[str, Dialect] = {
    dialect.name: dialect for dialect in (*PROPOSALS, *(release.dialect for release in RELEASES))
}


def first_with(**switches: Any) -> Release:
    """The oldest release whose dialect has these switches so."""
    return next(
        release
        for release in RELEASES
        if all(getattr(release.dialect, name) == value for name, value in switches.items())
    )


def release_named(dialect: str) -> Release | None:
    """The release that speaks a dialect, if it is that of one."""
    return next((release for release in RELEASES if release.dialect.name == dialect), None)
