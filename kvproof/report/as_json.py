"""Outcomes as JSON objects: the keys are a promise to those who read them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kvproof.gate import GateResult
from kvproof.prove import Proofs
from kvproof.replay import Replayed
from kvproof.search import Outcome
from model.program import action_to_json


def outcome_json(outcome: Outcome, traces: dict[str, Path]) -> dict[str, Any]:
    return {
        "verdict": outcome.verdict,
        "subject": outcome.subject,
        "dialect": outcome.dialect,
        "seed": outcome.seed,
        "programs": outcome.programs,
        "actions_run": outcome.actions_run,
        "actions_moving": outcome.actions_moving,
        "seconds": round(outcome.seconds, 3),
        "findings": [
            {
                "rule": finding.breach.rule,
                "actions": [action_to_json(action) for action in finding.program.actions],
                "actions_count": len(finding.program.actions),
                "first_bad_step": finding.breach.step,
                "evidence": list(finding.breach.evidence),
                "known": finding.breach.known,
                "trace": str(traces[finding.breach.rule])
                if finding.breach.rule in traces
                else None,
            }
            for finding in outcome.findings
        ],
        "goals": dict(sorted(outcome.goals.items())),
        "unmet_goals": list(outcome.unmet),
        "known_defects": dict(outcome.known),
        "waived_rules": outcome.waived,
        "unrepeated": dict(outcome.unrepeated),
        "stopped": outcome.stopped,
    }


def table_json(table: dict[int, dict[str, str]]) -> dict[str, Any]:
    return {"rows": [{"free_blocks": free, "cells": cells} for free, cells in table.items()]}


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
            }
            for entry in replayed
        ]
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
                "details": list(stage.details),
            }
            for stage in result.stages
        ],
    }
