"""Export a trace as a stand-alone pytest file that needs nothing but vLLM and pytest.

The program runs on the reference under the dialect in which it was found; a recorder writes down
every call that the session makes, with its indices resolved, in the engine's own API. Answers
that later calls depend on are compared with the recorded ones while the file runs: a release that
goes another way makes it a skip, since the sequence then says nothing about that release.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from invariants.rules import RULE_BY_ID
from kvproof.engines.vllm.export import text
from kvproof.engines.vllm.export.scheduler import RULES, export_serving_test
from kvproof.engines.vllm.export.words import plain, ranges
from kvproof.reports.words.calls import call_of
from model.allocator import Allocation, Rows
from model.dialect import DIALECTS, Dialect
from model.holding import Hit
from model.manager.actions import Action
from model.manager.configuration import Configuration
from model.manager.program import ManagerProgram
from model.manager.session import Response, Session
from model.program import Program
from model.reference import ReferenceAllocator
from model.release import PoppedBlocks
from model.request import Request
from model.snapshot import Snapshot
from specs.casefile import CaseFile, Expectation, Found


class ExportError(Exception):
    """A trace that no stand-alone file can reproduce; one line says why."""


def export_test(trace: CaseFile) -> str:
    """The text of a pytest file that fails where the trace's rule is broken.

    Raises ``ExportError``.
    """
    if trace.level == "scheduler":
        return _export_scheduler_test(trace)
    return _export_manager_test(trace)


def _export_scheduler_test(trace: CaseFile) -> str:
    return export_serving_test(
        trace.program,
        _rule_of(trace, RULES),
        about=trace.about,
        step=trace.found.step if trace.found else None,
        evidence=trace.found.evidence if trace.found else (),
        origin=_origin(trace.found),
    )


def _export_manager_test(trace: CaseFile) -> str:
    rule, dialect = _rule_of(trace, (*text.CHECKS, *text.JUDGED_BY_CALLS)), _dialect_of(trace)
    actions = trace.program.actions[: trace.found.step + 1 if trace.found else None]
    program = Program(trace.program.configuration, actions)
    raises = _record(program, dialect, "").dead
    recorder = _record(program, dialect, "I4 metered" if rule == "I4" and not raises else rule)
    if rule in text.BROKEN_BY_REFUSAL and not recorder.refused_last:
        raise ExportError(f"rule {rule}: the last step is no refused allocation in this dialect")
    return _file(trace, rule, program.configuration, recorder)


def _rule_of(trace: CaseFile, known: tuple[str, ...]) -> str:
    """The trace's rule, which must be one of those that an exported file can judge."""
    source: Found | Expectation | None = trace.found or trace.expect
    if source is None:
        raise ExportError("the trace names no rule: give it a finding or an expectation")
    if source.rule not in known:
        raise ExportError(
            f"rule {source.rule} has no stand-alone predicate: replay the trace with kvproof, "
            f"or export one of {', '.join(known)}"
        )
    return source.rule


def _dialect_of(trace: CaseFile) -> Dialect:
    """The dialect in which it was found, or that of the first subject on which it fails."""
    names = [trace.found.dialect] if trace.found else []
    for subject in trace.expect.fails if trace.expect else ():
        names.append(subject.removeprefix("reference:").replace("==", "-"))
    for name in names:
        if name in DIALECTS:
            return DIALECTS[name]
    raise ExportError(f"no dialect is known for this trace (known: {', '.join(DIALECTS)})")


def _record(program: ManagerProgram, dialect: Dialect, rule: str) -> Recorder:
    c = program.configuration
    recorder = Recorder(ReferenceAllocator(c, dialect), c)
    session: Session[Hit, PoppedBlocks] = Session(c, recorder)
    for index, action in enumerate(program.actions):
        recorder.begin(index, action, rule if index == len(program.actions) - 1 else "")
        recorder.end(session.do(action))
        recorder.dead = session.dead
        if session.dead:
            break
    return recorder


_STATUS = ("WAITING", "RUNNING", "PREEMPTED", "FINISHED_STOPPED", "FINISHED_ABORTED")
"""The engine's names, by ``model.request.Status``."""


@dataclass(slots=True)
class Recorder:
    """An allocator that passes calls on to the reference and writes them down for the engine."""

    reference: ReferenceAllocator
    configuration: Configuration
    lines: list[str] = field(default_factory=list)
    dead: bool = False
    refused_last: bool = False
    _step: int = 0
    _judged: str = ""
    """The rule that the step being recorded breaks, or nothing."""
    _told: dict[int, dict[str, object]] = field(default_factory=dict)
    """What the engine's requests were told of their progress, by request."""
    _held: list[tuple[object, str]] = field(default_factory=list)
    """Blocks that the file keeps in variables, and their names."""
    _names: int = 0
    _scheduled: str = ""

    def begin(self, index: int, action: Action, judged: str) -> None:
        self._step, self._judged = index + 1, judged
        self.lines += ["", f"# {self._step}. {call_of(action)}"]

    def end(self, response: Response) -> None:
        if response[0][0] == "idle":
            self.lines[-1] += ": not possible now"

    @property
    def held(self) -> str:
        """The names of all variables that hold blocks."""
        return f"[{', '.join(name for _, name in self._held)}]"

    def _write(self, *lines: str) -> None:
        self.lines += lines

    def _expect(self, seen: str, recorded: object) -> None:
        self._write(f"expect({self._step}, {seen}, {recorded})")

    def _synced(self, request: Request) -> str:
        """Tell the engine's request the progress that its scheduler would have noted."""
        name = f"request_{request.id}"
        progress: dict[str, object] = {
            "status": f"RequestStatus.{_STATUS[request.status]}",
            "num_computed_tokens": request.computed,
            "num_in_flight_tokens": request.in_flight,
            "num_output_placeholders": request.placeholders,
        }
        told = self._told[request.id]
        self._write(*(f"{name}.{k} = {v}" for k, v in progress.items() if told[k] != v))
        told.update(progress)
        return name

    def _keep(self, what: object, prefix: str) -> str:
        name = f"{prefix}_{self._names}"
        self._names += 1
        self._held.append((what, name))
        return name

    # Requests

    def register(self, request: Request) -> None:
        salt = f', cache_salt="{request.salt}"' if request.salt else ""
        tokens = ranges(request.tokens)
        self._write(f'request_{request.id} = new_request("{request.id}", {tokens}{salt})')
        self._told[request.id] = {
            "status": "RequestStatus.WAITING",
            "num_computed_tokens": 0,
            "num_in_flight_tokens": 0,
            "num_output_placeholders": 0,
        }
        self.reference.register(request)

    def append(self, request: Request, token: int) -> None:
        self._write(f"request_{request.id}.append_output_token_ids({token})")
        self.reference.append(request, token)

    # Allocation and release

    def lookup(self, request: Request) -> tuple[Hit, int]:
        name = self._synced(request)
        hit, tokens = self.reference.lookup(request)
        self._write(f"hit, hit_tokens, *_ = manager.get_computed_blocks({name})")
        self._expect("hit_tokens", tokens)
        return hit, tokens

    def allocate(
        self,
        request: Request,
        new_tokens: int,
        hit: Hit | None,
        hit_tokens: int,
        beside_running: bool,
    ) -> Allocation:
        name = self._synced(request)
        metered = self._judged == "I4 metered"
        if metered:
            group = self.reference.state.indexer_group
            free = f"sum(block.ref_cnt == 0 for block in hit.blocks[{group}])"
            self._write(
                f"hit_free = {free if hit is not None else 0}",
                "promised, taken = metered(manager)",
            )
        elif self._judged == "I4":
            self._write("# It answers with blocks or with None; it must not raise.")
        keywords: tuple[str, ...] = ()
        if hit is not None:
            keywords = (
                "num_new_computed_tokens=hit_tokens",
                "new_computed_blocks=hit",
                f"full_sequence_must_fit={self.configuration.full_sequence_must_fit}",
                f"has_scheduled_reqs={beside_running}",
            )
        self._write(*_call("new = manager.allocate_slots", name, str(new_tokens), *keywords))
        allocation = self.reference.allocate(request, new_tokens, hit, hit_tokens, beside_running)
        if metered:
            self._write("assert new is None or len(taken) + hit_free <= promised[-1]")
        elif self._judged in text.BROKEN_BY_REFUSAL:
            self.refused_last = allocation.new_blocks is None
            self._write("assert new is not None, 'a request that fits was refused'")
        elif self._judged != "I4":
            self._expect("new is not None", allocation.new_blocks is not None)
        return allocation

    def cache(self, request: Request, tokens: int) -> None:
        self._write(f"manager.cache_blocks({self._synced(request)}, {tokens})")
        self.reference.cache(request, tokens)

    def free(self, request: Request) -> None:
        self._write(f"manager.free({self._synced(request)})")
        self.reference.free(request)

    def pop(self, request: Request) -> PoppedBlocks | None:
        call = f"manager.pop_blocks_for_free({self._synced(request)})"
        popped = self.reference.pop(request)
        if popped is None:
            self._expect(f"len({call})", 0)
        else:
            self._write(f"{self._keep(popped, 'popped')} = {call}")
        return popped

    def free_popped(self, blocks: PoppedBlocks) -> None:
        index = next(i for i, (kept, _) in enumerate(self._held) if kept is blocks)
        _, name = self._held.pop(index)
        self._write(f"manager.block_pool.free_blocks(reversed({name}))")
        self.reference.free_popped(blocks)

    # Steps and transfers

    def end_step(self, scheduled: Sequence[tuple[Request, int]]) -> None:
        pairs = ", ".join(f'("{request.id}", {tokens})' for request, tokens in scheduled)
        self._scheduled = f"[{pairs}]"
        self.reference.end_step(scheduled)

    def take_command(self) -> Rows:
        command = self.reference.take_command()
        call = f"end_step(coordinator, {self._scheduled})"
        self._expect(call, [transfer for transfer, *_ in command])
        return command

    def take_updates(self, scheduled: Sequence[Request]) -> Rows:
        return self.reference.take_updates(scheduled)

    def update_transfers(self, enqueued: Mapping[int, int], completed: Mapping[int, int]) -> None:
        self._write(f"coordinator.update_spills({dict(enqueued)}, {dict(completed)})")
        self.reference.update_transfers(enqueued, completed)

    def pending_reclamation(self) -> bool:
        return self.reference.pending_reclamation()

    def common_prefix(self, request: Request) -> tuple[int, ...]:
        if self._judged in ("I19", "crash"):
            self._write(f'manager.get_num_common_prefix_blocks("{request.id}")')
        return self.reference.common_prefix(request)

    def evict(self, request: Request, page: int) -> None:
        holding = self.reference.state.holdings.get(request.id)
        if holding is not None and page < len(holding.indexer):
            group = self.reference.state.indexer_group
            block = f'manager.get_block_ids("{request.id}")[{group}][{page}]'
            self._write(f"manager.evict_blocks({{{block}}})")
        self.reference.evict(request, page)

    def reset(self) -> bool:
        done = self.reference.reset()
        self._expect("manager.reset_prefix_cache()", done)
        return done

    def hold(self, free_blocks: int) -> None:
        excess = max(len(self.reference.state.gpu.free) - free_blocks, 0)
        name = self._keep(excess, "held")
        self._write(f"{name} = manager.block_pool.get_new_blocks({excess})")
        self.reference.hold(free_blocks)

    def snapshot(
        self, requests: Sequence[Request], scheduled: Mapping[int, int], deferred: Sequence[object]
    ) -> Snapshot:
        raise NotImplementedError("a recorder is asked for calls only")


# The file


def _file(trace: CaseFile, rule: str, c: Configuration, recorder: Recorder) -> str:
    check = text.CHECKS.get(rule)
    body = ["manager = new_manager()"]
    body += ["coordinator = get_hisparse_coordinator(manager)"] if c.hisparse else []
    body += recorder.lines
    if check:
        coordinator = "coordinator" if c.hisparse else None
        body += ["", f"# {_sentence(rule)}", f"check(manager, {coordinator}, {recorder.held})"]
    test = "".join(f"    {line}\n" if line else "\n" for line in body)
    parts = [_configuration(c), text.REQUEST]
    parts += [text.END_STEP] if "end_step(" in test else []
    parts += [text.EXPECT] if "expect(" in test else []
    parts += [text.METERED] if "metered(" in test else []
    parts += [text.POOLS] if check and "pools(" in check else []
    parts += [check] if check else []
    parts += [f"def test_{rule.lower()}():\n{test}"]
    code = "\n\n".join(parts)
    return f"{_head(trace, rule)}\n{_imports(code)}\n{code}"


def _head(trace: CaseFile, rule: str) -> str:
    about, origin = textwrap.fill(plain(trace.about), 96), _origin(trace.found)
    return text.HEAD.substitute(about=about, rule=f"{rule}: {_sentence(rule)}", origin=origin)


def _origin(found: Found | None) -> str:
    if found is None:
        return ""
    seed = "" if found.seed is None else f" (seed {found.seed})"
    return f" that it found on {plain(found.subject)}{seed}"


def _imports(code: str) -> str:
    """The imports that the code uses, in order, in groups."""
    groups = [
        [line for line in group if re.search(rf"\b{line.split()[-1]}\b", code)]
        for group in (text.STANDARD_IMPORTS, text.ENGINE_IMPORTS)
    ]
    names = [name for name in text.INTERFACE_NAMES if re.search(rf"\b{name}\b", code)]
    interface = [
        "from vllm.v1.kv_cache_interface import (",
        *(f"    {name}," for name in names),
        ")",
    ]
    request = ["from vllm.v1.request import Request"]
    request[0] += ", RequestStatus" if "RequestStatus" in code else ""
    standard, engine = groups
    return "\n".join([*standard, "", *engine, *interface, *request, ""])


def _sentence(rule: str) -> str:
    return RULE_BY_ID[rule].sentence if rule in RULE_BY_ID else "No call may raise."


def _configuration(c: Configuration) -> str:
    """Block size and length as constants, and a function that builds the manager."""
    if c.hisparse:
        spec = text.HISPARSE_SPECS.substitute(hot_blocks=c.hot_blocks)
        host = f"\n        hisparse_host_num_blocks={c.num_host_blocks},"
        numbers = range(c.num_resident_groups)
        groups = [
            '["source"], mla, role=role.HISPARSE_SOURCE, host_resident=True',
            '["indexer"], mla, role=role.HISPARSE_INDEXER',
            *(f'["resident{n}"], resident, enable_kv_transfer=False' for n in numbers),
            *(f'["hot{n}"], hot, enable_kv_transfer=False' for n in numbers),
        ]
    else:
        spec, host, groups = text.PLAIN_SPEC, "", ['["layer"], full']
    watermark = f"({c.watermark_blocks} + 0.5) / {c.num_blocks}" if c.watermark_blocks else "0.0"
    manager = text.MANAGER.substitute(
        spec=spec,
        num_blocks=c.num_blocks,
        groups=(",\n" + " " * 12).join(f"KVCacheGroupSpec({group})" for group in groups),
        host=host,
        max_in_flight_tokens=c.max_in_flight_tokens,
        prefix_caching=c.prefix_caching,
        watermark=watermark,
    )
    constants = f"BLOCK_SIZE = {c.block_size}\nMAX_MODEL_LEN = {c.max_model_len}\n"
    return f"init_none_hash(sha256)\n\n{constants}\n\n{manager}"


def _call(function: str, *arguments: str) -> list[str]:
    """A call on one line if it is short, else with a line for each argument."""
    if len(arguments) <= 2:
        return [f"{function}({', '.join(arguments)})"]
    return [f"{function}(", *(f"    {argument}," for argument in arguments), ")"]
