"""Outcomes as JSON objects: the keys are a promise to those who read them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kvproof.gate.events import GateResult
from kvproof.reports.words.gate import details_of
from kvproof.search.outcome import Finding, Outcome
from kvproof.search.replayed import Replayed
from kvproof.theorems.proofs import Proofs
from model.program import action_to_json


def outcome_json(outcome: Outcome, traces: dict[str, Path]) -> dict[str, Any]:
    return {
        "verdict": outcome.verdict,
        "level": outcome.level,
        "subject": outcome.subject,
        "dialect": outcome.dialect,
        "seed": outcome.seed,
        "programs": outcome.programs,
        "actions_run": outcome.actions_run,
        "actions_moving": outcome.actions_moving,
        "scheduler_steps": outcome.steps,
        "shadowed": dict(outcome.shadowed),
        "shadow_ends": dict(outcome.shadow_ends),
        "seconds": round(outcome.seconds, 3),
        "findings": [
            _finding_json(finding, traces.get(finding.violation.rule))
            for finding in outcome.findings
        ],
        "goals": dict(sorted(outcome.goals.items())),
        "unmet_goals": list(outcome.unmet),
        "known_defects": dict(outcome.known),
        "waived_rules": outcome.waived,
        "refused": dict(outcome.refused),
        "unrepeated": dict(outcome.unrepeated),
        "stopped": outcome.stopped,
        "notes": list(outcome.notes),
    }


def _finding_json(finding: Finding, trace: Path | None) -> dict[str, Any]:
    program = finding.program
    actions = [action_to_json(action) for action in program.actions]
    return {
        "rule": finding.violation.rule,
        "actions": actions,
        "actions_count": len(actions),
        "first_bad_step": finding.violation.step,
        "evidence": list(finding.violation.evidence),
        "known": finding.violation.known,
        "cause": finding.violation.cause,
        "trace": None if trace is None else str(trace),
    }


def table_json(table: dict[int, dict[str, str]], notes: Sequence[str] = ()) -> dict[str, Any]:
    rows = [{"free_blocks": free, "cells": cells} for free, cells in table.items()]
    return {"rows": rows, "notes": list(notes)}


def replay_json(replayed: Sequence[Replayed]) -> dict[str, Any]:
    return {
        "traces": [
            {
                "trace": entry.trace,
                "subject": entry.subject,
                "outcome": entry.outcome,
                "expected": entry.expected,
                "first_changed_step": entry.first_changed_step,
                "why": entry.why,
                "known": entry.known,
            }
            for entry in replayed
        ],
        "notes": list(dict.fromkeys(note for entry in replayed for note in entry.notes)),
    }


def proofs_json(proofs: Proofs) -> dict[str, Any]:
    return {
        "verdict": proofs.verdict,
        "obligations": [
            {
                "id": result.id,
                "rule": result.rule,
                "verdict": result.verdict,
                "expected": result.expected,
                "ms": round(result.ms, 3),
                "twin": result.twin,
                "witness": result.witness
                if isinstance(result.witness, str)
                else dict(result.witness),
            }
            for result in proofs.results
        ],
        "proved": proofs.count("proved"),
        "refuted": proofs.count("refuted"),
        "unknown": proofs.count("unknown"),
        "seconds": round(proofs.seconds, 3),
        "assumption": proofs.assumption,
    }


def gate_json(result: GateResult) -> dict[str, Any]:
    return {
        "verdict": result.verdict,
        "seconds": round(result.seconds, 3),
        "stages": [
            {
                "name": stage.name,
                "subject": stage.subject,
                "verdict": stage.verdict,
                "seconds": round(stage.seconds, 3),
                "details": list(details_of(stage.result)),
            }
            for stage in result.stages
        ],
        "notes": list(result.notes),
    }
