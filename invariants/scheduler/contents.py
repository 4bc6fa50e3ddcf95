"""I7: requests read what their own prefix wrote, and clients get the tokens that come next.

What a failed load leaves may be read before the engine can know of it, as long as no client gets
a token that was computed on it.
"""

from collections.abc import Iterator

from invariants.scheduler.found import Found
from invariants.violation import Cause
from model.contents import Contents
from model.scheduler.ghost_worker import Misread
from model.scheduler.happenings import Delivered, StepExecuted


def misreads(contents: Contents, step: StepExecuted) -> Iterator[Found]:
    for of_one_request in step.misread:
        yield "I7", Cause.MISREAD, *(_describe(contents, misread) for misread in of_one_request)


def _describe(contents: Contents, misread: Misread) -> str:
    meaning = contents.meaning(misread.found)
    return (
        f"request {misread.request} reads page {misread.page} of group {misread.group} from "
        f"{misread.where}, which holds {meaning}"
    )


def wrong_tokens(delivered: Delivered) -> Iterator[Found]:
    output = delivered.output
    if output.tokens and delivered.tainted:
        yield (
            "I7",
            Cause.TOKEN_OF_FAILED_LOAD,
            f"request {output.request} is given a token that was computed on what a failed load "
            "left",
        )
    if tuple(output.tokens) != delivered.expected:
        yield (
            "I7",
            Cause.WRONG_TOKENS,
            f"request {output.request} is given tokens {output.tokens}, and {delivered.expected} "
            "come next",
        )
