"""Shrinking: a program that breaks a rule becomes a small one that breaks it as well."""

import time
from dataclasses import replace

from invariants.violation import Violation
from kvproof.errors import CouldNotRun
from kvproof.levels.level import WORKER_RULES, Examination, Examiner
from kvproof.search.outcome import Finding
from model.program import AnyProgram

SHRINKING_SECONDS = 120.0
"""Time to shrink a crash or a hang; all else is shrunk to the end."""


def small_finding(examiner: Examiner, violation: Violation, program: AnyProgram) -> Finding:
    """Shrink a failing program, in configurations that the engine would start with.

    A failure that does not come again is a finding too, as it was seen.
    """
    exact = examiner.exact(violation.rule)
    why = "it was seen once and not again: the subject is not stable, and this is not minimised"
    try:
        for shrinker in examiner.shrinkers(violation.rule):
            small = _shrunk(shrinker, violation, program)
            result = exact.examine(small) if small else None
            seen = _same(result, violation) if result else None
            if small and result and seen:
                return Finding(_placed(seen, small), small, result.digests)
    except CouldNotRun as error:
        why = f"it could not be minimised: {error}"
    unshrunk = replace(violation, evidence=(*violation.evidence, why))
    return Finding(_placed(unshrunk, program), program)


class OutOfPatienceError(Exception):
    """Shrinking takes too long."""


def _shrunk(examiner: Examiner, violation: Violation, program: AnyProgram) -> AnyProgram | None:
    """The program made small, if it fails on this examiner at all.

    A crash or a hang is made as small as the time allows.
    """
    patience = SHRINKING_SECONDS if violation.rule in WORKER_RULES else float("inf")
    deadline = time.monotonic() + patience
    smallest = program

    def fails(candidate: AnyProgram) -> bool:
        nonlocal smallest
        if time.monotonic() > deadline:
            raise OutOfPatienceError
        failed = _same(examiner.examine(candidate), violation) is not None
        if failed and len(candidate.actions) <= len(smallest.actions):
            smallest = candidate
        return failed

    try:
        small: AnyProgram | None = examiner.shrink(program, fails) if fails(program) else None
    except OutOfPatienceError:
        return smallest
    return small


def _same(result: Examination, violation: Violation) -> Violation | None:
    """The violation of the same rule: a known defect is never the same as an unknown one."""
    kind = (violation.rule, violation.known)
    return next((b for b in result.violations if (b.rule, b.known) == kind), None)


def _placed(violation: Violation, program: AnyProgram) -> Violation:
    """A worker that died told of no step: the last action of a minimal program is to blame."""
    if violation.rule in WORKER_RULES:
        return replace(violation, step=len(program.actions) - 1)
    return violation
