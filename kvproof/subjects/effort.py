"""What a step of an engine's scheduler costs: a question to its worker."""

from invariants.scheduler.effort import Effort
from kvproof.errors import CouldNotRun
from kvproof.subjects.worker import EngineSubject


def efforts_of(subject: EngineSubject) -> tuple[Effort, ...]:
    """What a step costs after a short and after a long context; raises ``CouldNotRun``."""
    reply = subject.ask({"efforts": True})
    try:
        return tuple([Effort(**effort) for effort in reply.message["efforts"]])
    except (KeyError, TypeError) as error:
        why = reply.failure or reply.message.get("error") or "the answer cannot be read"
        raise CouldNotRun(f"{subject.name} could not count its effort: {why}") from error
