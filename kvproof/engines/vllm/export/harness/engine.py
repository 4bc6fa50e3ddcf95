"""A scheduler with workers that do what each step says, and clients that wait for tokens.

The workers sample the tokens that a test gives. They print what was scheduled and what came of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import KVCacheConfig
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus

from kvproof.engines.vllm.export.harness.pools import pools_of
from kvproof.engines.vllm.inside.settings import sampling_parameters
from model.scheduler.plan import Load


class Share(NamedTuple):
    """The part of a step that is one request's: tokens [start, end) of it."""

    request_id: str
    start: int
    end: int


@dataclass
class Step:
    """A step that was scheduled and whose output was not processed."""

    number: int
    output: SchedulerOutput
    shares: list[Share]
    sampled: dict[str, list[int]]


class Rule:
    """A rule looks on: at a step that was scheduled and that the workers run, a load up to a
    position, tokens that a client is given, and the scheduler at rest."""

    def scheduled(self, engine: Engine, step: Step) -> None: ...
    def runs(self, engine: Engine, step: Step) -> None: ...
    def loaded(self, load: Load, good: int) -> None: ...
    def told(self, engine: Engine, step: Step, request_id: str, tokens: list[int]) -> None: ...
    def judge(self, engine: Engine) -> None: ...


class Engine:
    """The scheduler, its workers and its clients."""

    def __init__(
        self,
        scheduler: Scheduler,
        rule: Rule,
        connectors: Sequence[Any] = (),
    ) -> None:
        config = scheduler.vllm_config
        self.scheduler = scheduler
        self.steps_in_flight = config.max_concurrent_batches
        hashed = config.cache_config.enable_prefix_caching or connectors
        block_size = config.cache_config.block_size
        self.hasher = get_request_block_hasher(block_size, sha256) if hashed else None
        self.rule = rule
        self.connectors = connectors  # what stands for the workers' half of each
        self.texts: dict[str, list[int]] = {}  # each request's prompt, and what is sampled then
        self.salts: dict[str, str] = {}
        self.told: dict[str, int] = {}  # how many tokens of its text a client knows
        self.live: list[str] = []  # requests that have not ended, oldest first
        self.in_flight: list[Step] = []
        self.steps = 0

    def arrive(
        self,
        request_id: str,
        text: list[int],
        prompt: int,
        max_tokens: int,
        cache_salt: str = "",
        priority: int = 0,
    ) -> None:
        """A request whose prompt is the first ``prompt`` tokens of ``text``; it gets the rest."""
        self.texts[request_id], self.told[request_id] = text, prompt
        self.salts[request_id] = cache_salt
        self.live.append(request_id)
        self.scheduler.add_request(
            Request(
                request_id,
                text[:prompt],
                sampling_parameters(max_tokens),
                None,
                arrival_time=float(request_id),
                priority=priority,
                cache_salt=cache_salt or None,
                block_hasher=self.hasher,
            )
        )

    def step(self) -> None:
        """Schedule a step and run it; with all steps in flight, process an output first."""
        if len(self.in_flight) == self.steps_in_flight:
            self.output()
        if not self.scheduler.has_requests():
            return
        output = self.scheduler.schedule()
        self.steps += 1
        shares = shares_of(output)
        for request_id, start, end in shares:
            print(f"step {self.steps}: request {request_id} computes tokens {start} to {end - 1}")
        for request_id in sorted(output.preempted_req_ids or ()):
            print(f"step {self.steps}: request {request_id} is preempted")
        sampled = {
            request_id: [self.texts[request_id][end]]
            for request_id, _, end in shares
            if not self.scheduler.requests[request_id].is_prefill_chunk
        }
        step = Step(self.steps, output, shares, sampled)
        self.rule.scheduled(self, step)
        for connector in self.connectors:
            connector.start(step)
        self.rule.runs(self, step)
        self.in_flight.append(step)
        self.rule.judge(self)

    def output(self) -> None:
        """Process the output of the oldest step in flight."""
        if not self.in_flight:
            return
        step = self.in_flight.pop(0)
        request_ids = list(step.output.num_scheduled_tokens)
        report = KVConnectorOutput()
        for connector in self.connectors:
            connector.report(step, report)
        runner_output = ModelRunnerOutput(
            req_ids=request_ids,
            req_id_to_index={request_id: i for i, request_id in enumerate(request_ids)},
            sampled_token_ids=[step.sampled.get(request_id, []) for request_id in request_ids],
            logprobs=None,
            prompt_logprobs_dict={},
            pooler_output=[],
            kv_connector_output=None if report.is_empty() else report,
        )
        outputs = self.scheduler.update_from_output(step.output, runner_output)
        for said in [said for client in outputs.values() for said in client.outputs]:
            request_id, tokens = said.request_id, list(said.new_token_ids)
            print(f"request {request_id} is given {tokens}, {said.finish_reason or 'goes on'}")
            self.rule.told(self, step, request_id, tokens)
            self.told[request_id] += len(tokens)
            if said.finish_reason is not None and request_id in self.live:
                self.live.remove(request_id)
        self.rule.judge(self)

    def under_way(self) -> bool:
        """Whether a step, a load or a transfer is under way."""
        return bool(self.in_flight) or any(each.under_way for each in self.connectors)


def shares_of(output: SchedulerOutput) -> list[Share]:
    start = {new.req_id: new.num_computed_tokens for new in output.scheduled_new_reqs}
    cached = output.scheduled_cached_reqs
    start.update(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
    tokens = output.num_scheduled_tokens
    return [Share(key, start[key], start[key] + tokens[key]) for key in tokens]


def new_scheduler(of: type[Scheduler], config: Any, cache: KVCacheConfig) -> Scheduler:
    init_none_hash(sha256)
    return of(
        vllm_config=config,
        kv_cache_config=cache,
        structured_output_manager=SimpleNamespace(accept_tokens=lambda request, tokens: True),
        block_size=config.cache_config.block_size,
        hash_block_size=config.cache_config.block_size,
        mm_registry=SimpleNamespace(supports_multimodal_inputs=lambda model_config: False),
    )


# What happens besides


def abort(engine: Engine, index: int) -> None:
    """A client gives up: that of the request with this index among those that live."""
    if engine.live:
        request_id = engine.live.pop(index % len(engine.live))
        print(f"request {request_id} is aborted")
        engine.scheduler.finish_requests(request_id, RequestStatus.FINISHED_ABORTED)
        engine.rule.judge(engine)


def reset(engine: Engine, preempt_running: bool = False) -> None:
    """Reset the prefix cache; a scheduler that cannot may raise, and goes on."""
    try:
        done = engine.scheduler.reset_prefix_cache(
            reset_running_requests=preempt_running and not engine.in_flight
        )
    except RuntimeError as error:
        if type(error) is not RuntimeError:
            raise
        done = False
    print(f"the prefix cache is {'reset' if done else 'not reset'}")
    engine.rule.judge(engine)


def drain(engine: Engine, patience: int) -> None:
    """Complete all that is pending, at once, and step on until all requests have ended.

    Within ``patience`` steps some request gets a token, even if each of them starts anew.
    """
    since_progress = 0
    while engine.live or engine.under_way() or engine.scheduler.has_requests():
        before = (sum(engine.told.values()), len(engine.live))
        engine.step()
        for connector in engine.connectors:
            connector.complete_all(engine)
        while engine.in_flight:
            engine.output()
        progress = before != (sum(engine.told.values()), len(engine.live))
        since_progress = 0 if progress else since_progress + 1
        assert since_progress <= patience, f"no request gets a token any more: {waiting(engine)}"


def waiting(engine: Engine) -> str:
    """Who waits, and what is free."""
    requests = [
        f"request {request_id} is {request.status.name.lower()}, "
        f"{request.num_computed_tokens} of {request.num_tokens} tokens computed, "
        f"preempted {request.num_preemptions} times"
        for request_id, request in engine.scheduler.requests.items()
    ]
    pools = [
        f"{pool.get_num_free_blocks()} of {len(pool.blocks) - 1} blocks free"
        for pool in pools_of(engine.scheduler.kv_cache_manager)
    ]
    return "; ".join(requests + pools)
