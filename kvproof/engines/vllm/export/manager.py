"""A case of the manager level as a pytest file: calls, and the predicate of its rule."""

from __future__ import annotations

from invariants.rules import RULE_BY_ID
from kvproof.engines.vllm.export.calls import BROKEN_BY_REFUSAL, METERED, Recorder, record
from kvproof.engines.vllm.export.compose import compose
from kvproof.engines.vllm.export.head import CHECKS, ExportError, head, origin_of, rule_of
from kvproof.engines.vllm.export.layout import Brackets, Code, call, lines_of, listed
from model.dialect import Dialect
from model.manager.configuration import Configuration
from model.program import Program
from model.releases import DIALECTS
from specs.casefile import CaseFile
from specs.expectations import named

HARNESS = (
    "kvproof.engines.vllm.inside.groups",
    "kvproof.engines.vllm.inside.settings",
    "kvproof.engines.vllm.export.harness.manager",
    "kvproof.engines.vllm.export.harness.pools",
)
JUDGED_BY_CALLS = ("I4", "I6", "I16", "I19", "crash")
"""Rules that the last call itself shows: it raises, or answers wrongly."""
OUTCOMES = """\
FAILED: the rule is broken. PASSED: it holds. SKIPPED: this vLLM answers an earlier step
differently, so the sequence says nothing about it."""


def export_manager_test(case: CaseFile) -> str:
    """The text of a pytest file. Raises ``ExportError``."""
    rule, dialect = rule_of(case, (*CHECKS, *JUDGED_BY_CALLS)), _dialect_of(case)
    actions = case.program.actions[: case.found.step + 1 if case.found else None]
    program = Program(case.program.configuration, actions)
    raises = record(program, dialect, "").dead
    recorder = record(program, dialect, METERED if rule == "I4" and not raises else rule)
    if rule in BROKEN_BY_REFUSAL and not recorder.refused_last:
        raise ExportError(f"rule {rule}: the last step is no refused allocation in this dialect")
    sentence = RULE_BY_ID[rule].sentence if rule in RULE_BY_ID else "No call may raise."
    return compose(
        head(case.about, f"{rule}: {sentence}", origin_of(case.found), OUTCOMES),
        "\n".join(_test(rule, sentence, program.configuration, recorder)),
        HARNESS,
    )


def _dialect_of(case: CaseFile) -> Dialect:
    """The dialect in which it was found, or that of the first subject on which it fails."""
    names = [case.found.dialect] if case.found else []
    for subject in named(case.expect.fails) if case.expect else ():
        names.append(subject.removeprefix("reference:").replace("==", "-"))
    for name in names:
        if name in DIALECTS:
            return DIALECTS[name]
    raise ExportError(f"no dialect is known for this trace (known: {', '.join(DIALECTS)})")


def _test(rule: str, sentence: str, c: Configuration, recorder: Recorder) -> list[str]:
    statements: list[Code] = [_new_manager(c)]
    statements += ["coordinator = get_hisparse_coordinator(manager)"] if c.hisparse else []
    statements += recorder.statements
    if rule in CHECKS:
        statements += ["", f"# {sentence}", _check(rule, c, recorder.held)]
    lines = [line for code in statements for line in lines_of(code, "    " if str(code) else "")]
    return [
        *(["from vllm.v1.hisparse.coordinator import get_hisparse_coordinator"] * c.hisparse),
        *(["from vllm.v1.request import RequestStatus"] * any("RequestStatus" in n for n in lines)),
        f"def test_{rule.lower()}() -> None:",
        *lines,
    ]


def _new_manager(c: Configuration) -> Brackets:
    groups = call("full_groups", f"block_size={c.block_size}")
    if c.hisparse:
        numbers = (f"resident_groups={c.num_resident_groups}", f"hot_blocks={c.hot_blocks}")
        groups = call("hisparse_groups", *groups.items, *numbers)
    return call(
        "manager = new_manager",
        groups,
        f"num_blocks={c.num_blocks}",
        *([f"num_host_blocks={c.num_host_blocks}"] * c.hisparse),
        f"max_model_len={c.max_model_len}",
        f"max_in_flight_tokens={c.max_in_flight_tokens}",
        *(["prefix_caching=False"] * (not c.prefix_caching)),
        *([f"watermark_blocks={c.watermark_blocks}"] * bool(c.watermark_blocks)),
    )


def _check(rule: str, c: Configuration, held: list[str]) -> Brackets:
    if rule != "I2":
        return call(CHECKS[rule], "manager")
    others = [listed(held)] if held else []
    if c.hisparse:
        return call("check_hisparse_accounting", "manager", "coordinator", *others)
    return call("check_accounting", "manager", *others)
