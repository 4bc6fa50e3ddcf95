"""A step in flight, as the session keeps it until its output arrives."""

from dataclasses import dataclass

from model.request import Request


@dataclass(slots=True)
class StepInFlight:
    """A step that was handed to the workers: (request, tokens, its life, samples a token)."""

    scheduled: list[tuple[Request, int, int, bool]]
    command: tuple[tuple[int, int], ...]
    """(transfer, request) of each transfer that the step carries."""

    def essence(self) -> tuple[list[tuple[int, int, int, bool]], tuple[tuple[int, int], ...]]:
        """All of it as plain values."""
        scheduled = [(r.id, count, life, samples) for r, count, life, samples in self.scheduled]
        return scheduled, self.command
