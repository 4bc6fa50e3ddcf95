"""What a session tells those who watch it, at the moment when it happens: they may look at the
session and its engine then, and change nothing."""

from collections.abc import Callable
from dataclasses import dataclass

from model.scheduler.actions import Action
from model.scheduler.events import Response
from model.scheduler.ghost_worker import Cell, Misread
from model.scheduler.plan import Load, Output, StepPlan


@dataclass(frozen=True, slots=True)
class PreemptionPlanned:
    """The engine planned a step and preempted requests for it."""

    plan: StepPlan
    alone: bool
    """Whether nothing was pending before: no step, load or transfer, and no reset."""


@dataclass(frozen=True, slots=True)
class LoadStarted:
    """The store starts to write beside the steps."""

    load: Load
    cells: frozenset[Cell]
    """Blocks that it writes."""


@dataclass(frozen=True, slots=True)
class StepExecuted:
    """The worker carried out a step."""

    plan: StepPlan
    misread: tuple[tuple[Misread, ...], ...]
    """What requests misread though no failed load that nobody knows of explains it, by request,
    in the order in which it showed."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """The engine gives a client tokens, or says why its request ended."""

    output: Output
    expected: tuple[int, ...]
    """The tokens that come next in the request's text, as many as it gives."""
    tainted: bool
    """Whether the step was computed on what a failed load left."""


@dataclass(frozen=True, slots=True)
class ActionTaken:
    """An action of the program, or of what comes after its last one, was taken."""

    action: Action
    response: Response


Happening = PreemptionPlanned | LoadStarted | StepExecuted | Delivered | ActionTaken
Observer = Callable[[Happening], None]
