"""A case of the scheduler level as a pytest file for vLLM alone.

The file drives the scheduler itself: which steps it schedules is its own business, and the file's
workers answer whatever it schedules. So one file says the same about every release, and needs no
engine to be written.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from invariants.rules import sentence_of
from invariants.scheduler.progress import patience
from invariants.violation import Cause
from kvproof.engines.vllm.export.actions import statements_of
from kvproof.engines.vllm.export.compose import compose
from kvproof.engines.vllm.export.head import CHECKS, head, origin_of, rule_of
from kvproof.engines.vllm.export.layout import (
    Brackets,
    Code,
    call,
    lines_of,
    listed,
    literal,
    quoted,
)
from kvproof.engines.vllm.inside.settings import configured
from model.program import Program
from model.scheduler.actions import Arrive
from model.scheduler.program import SchedulerProgram
from model.scheduler.setup import SchedulerSetup

if TYPE_CHECKING:  # as in ``head``
    from specs.casefile import CaseFile

HARNESS = (
    "kvproof.engines.vllm.export.harness.engine",
    "kvproof.engines.vllm.export.harness.rules",
    "kvproof.engines.vllm.export.harness.memory",
    "kvproof.engines.vllm.export.harness.connectors",
    "kvproof.engines.vllm.export.harness.pools",
    "kvproof.engines.vllm.inside.store",
    "kvproof.engines.vllm.inside.configuration",
    "kvproof.engines.vllm.inside.settings",
    "kvproof.engines.vllm.inside.groups",
    "model.scheduler.plan",
)
WITHOUT_GPU = "kvproof.engines.vllm.export.harness.without_gpu"
STATE_RULES = ("I1", "I2", "I10", "I13")
"""Rules that the pools show after any call."""
RULES = (*STATE_RULES, "I4", "I7", "I12", "I15", "I16", "I17", "I19", "crash")
OUTCOMES = """\
The scheduler is the real one. The test comes first; below it are workers that do what each step
says and sample the tokens that the test gives. They print what was scheduled and what came of it,
which pytest shows when the test fails."""
FILLED = {"full": '{0: "gpu"}', "hisparse": '{HOST: "host", INDEXER: "gpu"}'}
"""By cache, the groups that a load fills; all two groups of the others."""
DRAINED = "Everything pending completes, and steps go on until all requests have ended."


def export_scheduler_test(case: CaseFile) -> str:
    """The text of a pytest file. Raises ``ExportError``."""
    return export_program(
        case.program,
        rule_of(case, RULES),
        about=case.about,
        step=case.found.step if case.found else None,
        cause=case.found.cause if case.found else None,
        origin=origin_of(case.found),
    )


def export_program(
    program: SchedulerProgram,
    rule: str,
    *,
    about: str,
    step: int | None = None,
    cause: Cause | None = None,
    origin: str = "",
) -> str:
    """The text of a pytest file that fails where the program breaks one of ``RULES``.

    ``step`` is the index of the action at which it was seen, and ``cause`` what was seen, where
    that is known: what comes after it is left out. ``about`` and ``origin`` (" that …") stand in
    the head.
    """
    sentence = f"{rule}: {sentence_of(rule, 'scheduler')}"
    test = body_of(program, rule, step, cause)
    return compose(head(about, sentence, origin, OUTCOMES), test, HARNESS, WITHOUT_GPU)


def body_of(
    program: SchedulerProgram, rule: str, step: int | None = None, cause: Cause | None = None
) -> str:
    """The test function alone, with imports of what it uses of the engine."""
    actions = program.actions
    drains = step is None or step >= len(actions) or rule in ("I12", "I16")
    if not drains and step is not None:
        actions = actions[: step + 1]
    part = _Part(Program(program.configuration, actions), rule, cause)
    statements = [*part.engine(), *statements_of(part.program, rule == "I16")]
    if drains:
        arrivals = [action for action in actions if isinstance(action, Arrive)]
        rounds = patience(part.setup, len(arrivals)) + sum(arrival.delays for arrival in arrivals)
        statements += ["", f"# {DRAINED}", f"drain(engine, patience={rounds})"]
    if rule == "I12":
        statements.append("check_quiescence(scheduler.kv_cache_manager)")
    lines = [line for code in statements for line in lines_of(code, "    " if str(code) else "")]
    test = [f"def test_{rule.lower()}() -> None:", *lines]
    return "\n".join([*part.imports(), *test, "", "", *part.config()])


@dataclass(frozen=True, slots=True)
class _Part:
    """What a program and a rule need of the harness."""

    program: SchedulerProgram
    rule: str
    cause: Cause | None

    @property
    def setup(self) -> SchedulerSetup:
        return self.program.configuration

    @property
    def loses(self) -> bool:
        """Whether the store fails to load something."""
        arrivals = [action for action in self.program.actions if isinstance(action, Arrive)]
        return self.setup.external_store and any(a.stored and a.lost for a in arrivals)

    @property
    def scheduler(self) -> str:
        return "AsyncScheduler" if self.setup.async_scheduling else "Scheduler"

    def imports(self) -> Iterator[str]:
        module = "async_scheduler" if self.setup.async_scheduling else "scheduler"
        yield f"from vllm.v1.core.sched.{module} import {self.scheduler}"
        yield "from types import SimpleNamespace"
        if self.rule == "I15" and self.setup.cache == "sliding" and self.setup.external_store:
            yield "from functools import partial"

    def config(self) -> Iterator[str]:
        """A function that returns what the scheduler reads of its configuration."""
        setup, failure = self.setup, quoted(self.setup.load_failure)
        transfer: Brackets | None = None
        if setup.hisparse:
            kind = "hisparse_beside_store" if setup.external_store else "hisparse_alone"
            transfer = call(kind, failure)
        elif setup.external_store:
            transfer = call("store_alone", failure)
        yield "def vllm_config() -> SimpleNamespace:"
        yield f'    """{configured.__doc__}"""'
        settings = literal(configured(setup, transfer))
        assert isinstance(settings, Brackets)
        yield from lines_of(Brackets(f"return {settings.opening}", settings.items, ")"), "    ")

    def cache(self) -> Brackets:
        setup = self.setup
        arguments: list[Code] = [f"block_size={setup.block_size}"]
        if setup.cache == "sliding":
            arguments.append(f"window={setup.sliding_window}")
        if setup.hisparse:
            arguments.append(f"resident_groups={setup.num_resident_groups}")
            arguments.append(f"hot_blocks={setup.hot_blocks}")
        pools: list[Code] = [f"num_blocks={setup.num_blocks}"]
        if setup.hisparse:
            pools.append(f"num_host_blocks={setup.num_host_blocks}")
        return call("cache_of", call(f"{setup.cache}_groups", *arguments), *pools)

    def engine(self) -> Iterator[Code]:
        """The scheduler, its connectors, the rule, and the engine that has them."""
        setup = self.setup
        cache = self.cache()
        yield Brackets(f"cache = {cache.opening}", cache.items, cache.closing)
        yield f"scheduler = new_scheduler({self.scheduler}, vllm_config(), cache)"
        connectors: list[Code] = []
        if setup.hisparse:
            yield f"transfers = Transfers{'BesideStore' * setup.external_store}()"
            connectors.append("transfers")
        if setup.external_store:
            store = "scheduler.connector" + ".sub_connectors[1]" * setup.hisparse
            lossy = f"LossyLoads({store}, block_size={setup.block_size})"
            yield f"loads = {lossy if self.loses else f'Loads({store})'}"
            connectors.append("loads")
        yield from self.judged()
        others = [listed(connectors)] if connectors else []
        yield call("engine = Engine", "scheduler", "rule", *others)

    def judged(self) -> Iterator[Code]:
        """Statements that make the rule; a bare one where a call or the end of a run judges it."""
        setup, rule = self.setup, self.rule
        if rule == "I2":
            yield f"rule = {'HiSparse' * setup.hisparse}ReferencesAreHeld()"
        elif rule in STATE_RULES:
            yield f"rule = PoolsAreSound({CHECKS[rule]})"
        elif rule == "I16":
            yield f"rule = NoneAlonePreempted({'transfers' * setup.hisparse})"
        elif rule == "I17":
            yield "rule = NoDebt()"
        elif rule == "I15" and setup.external_store:
            reach = f"{setup.cache}_reach"
            if setup.cache == "sliding":
                reach = f"partial(sliding_reach, window={setup.sliding_window})"
            filled = FILLED.get(setup.cache, '{0: "gpu", 1: "gpu"}')
            yield f"tables = {self.tables()}"
            yield call("rule = LoadsBesideNobody", "tables", str(setup.block_size), reach, filled)
        elif rule == "I7" and self.cause is Cause.WRONG_TOKENS:
            yield "rule = OwnTokens()"
        elif rule == "I7":
            kind = {"hisparse": "HiSparseMemory", "mamba": "MambaMemory"}.get(setup.cache, "Memory")
            yield call(
                f"memory = {kind}", self.tables(), str(setup.block_size), self.memory_groups()
            )
            if self.loses:
                yield "rule = NoLostContents(memory, loads)"
            else:
                yield f"rule = Own{'OrLoaded' * setup.external_store}Contents(memory)"
        else:
            yield "rule = Rule()"

    def tables(self) -> str:
        return (
            f"HiSparseTables({self.setup.num_resident_groups})"
            if self.setup.hisparse
            else "Tables()"
        )

    def memory_groups(self) -> Brackets:
        """The groups whose contents are followed."""
        resident = [f"Resident({2 + n})" for n in range(self.setup.num_resident_groups)]
        groups: dict[str, list[Code]] = {
            "full": ["Pages(0)"],
            "sliding": ["Pages(0)", f"Window(1, {self.setup.sliding_window})"],
            "mamba": ["Pages(0)"],
            "hisparse": ["Pages(1)", *resident],
        }
        return listed(groups[self.setup.cache])
