"""A call in the allocator's own words, on one line."""

from invariants.conformance.records import (
    Allocate,
    Call,
    Free,
    FreePopped,
    Other,
    Pop,
    Stopped,
    View,
)

_NAMES = {
    "Lookup": "get_computed_blocks",
    "Allocate": "allocate_slots",
    "Free": "free",
    "Pop": "pop_blocks_for_free",
    "FreePopped": "free_blocks",
    "Cache": "cache_blocks",
    "Advance": "advance_scheduled",
    "Command": "build_offload_command",
    "Residency": "take_residency_updates",
    "Tables": "take_block_table_updates",
    "Report": "update_spills",
    "Reclaimable": "has_pending_reclamation",
    "CommonPrefix": "get_num_common_prefix_blocks",
    "Evict": "evict_blocks",
    "Reset": "reset_prefix_cache",
    "Step": "new_step_starts",
    "Scheduled": "schedule",
}


def wording(call: Call) -> str:
    if isinstance(call, Other | Stopped):
        return call.name if isinstance(call, Other) else "the recorder"
    return f"{_NAMES[type(call).__name__]}({', '.join(_arguments(call))})"


def _arguments(call: Call) -> list[str]:
    if isinstance(call, Allocate):
        hit = "" if call.hit_blocks is None else f", hit {call.hit}"
        return [f"{_request(call.view)}, {call.new} new tokens{hit}", *call.beyond]
    if isinstance(call, Free | Pop):
        return [_request(call.view)]
    if isinstance(call, FreePopped):
        return [f"deferred release {call.release}"]
    view = getattr(call, "view", None)
    arguments = [] if view is None else [_request(view)]
    for name in ("tokens", "scheduled", "requests", "request", "enqueued", "completed"):
        if hasattr(call, name):
            arguments.append(f"{name} {getattr(call, name)}")
    if hasattr(call, "blocks") and view is None:
        arguments.append(f"blocks {call.blocks}")
    return arguments


def _request(view: View) -> str:
    return f"{view.status} request {view.request}, {view.computed} of {view.length} tokens computed"
