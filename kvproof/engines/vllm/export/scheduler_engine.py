"""The part of an exported file that stands for workers, clients and an external KV store.

See ``export_serving_text`` for how it is written.
"""

from __future__ import annotations

STORE = '''\
class Loads(KVConnectorMetadata):
    """What the store is to load, from this step on."""

    def __init__(self, loads):
        self.loads = loads


class Store(KVConnectorBase_V1, SupportsHMA):
    """An external KV store as a scheduler sees it: it has the first tokens of some requests."""

    requires_kv_delivery = False

    def __init__(self, vllm_config, role, kv_cache_config):
        super().__init__(vllm_config, role, kv_cache_config)
        self.stored = {}  # request id → tokens, whether they load beside the steps
#if delays
        self.delays = {}  # request id → look-ups that are answered "not known yet"
#fi
        self.matched = {}  # request id → where its load is to start
        self.starting = []

    def get_num_new_matched_tokens(self, request, num_computed_tokens):
        stored, asynchronous = self.stored.get(request.request_id, (0, False))
#if delays
        if self.delays.get(request.request_id):
            self.delays[request.request_id] -= 1
            return None, False
#fi
        # A load within a step leaves the last token to be computed.
        stored = min(stored, request.num_tokens - (not asynchronous))
        if stored <= num_computed_tokens:
            self.matched.pop(request.request_id, None)
            return 0, False
        self.matched[request.request_id] = num_computed_tokens
        return stored - num_computed_tokens, asynchronous

    def update_state_after_alloc(self, request, blocks, num_external_tokens):
        start = self.matched.pop(request.request_id, None)
        if num_external_tokens and start is not None:
            self.starting.append(
                SimpleNamespace(
                    request_id=request.request_id,
                    start=start,
                    end=start + num_external_tokens,
                    blocks=[list(row) for row in blocks.get_block_ids()],
                    asynchronous=self.stored[request.request_id][1],
                )
            )

    def build_connector_meta(self, scheduler_output):
        starting, self.starting = self.starting, []
        return Loads(starting)

    def request_finished(self, request, block_ids):
        self.stored.pop(request.request_id, None)
        self.matched.pop(request.request_id, None)
        return False, None

    def request_finished_all_groups(self, request, block_ids):
        return self.request_finished(request, block_ids)

    def reset_cache(self):
        return True

    def workers_half(self, *args, **kwargs):
        raise NotImplementedError("the test's workers load")

    start_load_kv = wait_for_layer_load = save_kv_layer = wait_for_save = workers_half
'''

ENGINE = '''\
class Engine:
    """The scheduler, its workers and its clients."""

    def __init__(self):
        self.scheduler = new_scheduler()
#if both
        self.store = self.scheduler.connector.sub_connectors[1]
#fi
#if store&!hisparse
        self.store = self.scheduler.connector
#fi
        self.texts = {}  # request id → all its tokens: the prompt, and what is sampled then
        self.told = {}  # request id → how many of them its client knows
        self.live = []  # requests that have not ended, oldest first
        self.in_flight = []  # steps whose output was not processed
#if progress&reset
        self.was_reset = False  # whether a reset preempted what ran, and no step came since
#fi
        self.steps = 0
#if hisparse
        self.transfers = []  # page transfers under way, oldest first
        self.completed = []  # those that the next output reports
#fi
#if store
        self.loads = []  # asynchronous loads under way
        self.received = set()  # requests whose loads the next output reports
#fi
#if lost
        self.lost_pages = {}  # request id → last pages that the store fails to load, once
        self.failed, self.invalid = set(), set()
#fi
#if lost&contents
        self.unknown = set()  # requests whose load failed, and the scheduler was not told
#fi
#if tables
        self.memory = Memory()
#fi

    def arrive(
        self,
        request_id,
        text,
        prompt,
        max_tokens,
        priority=0,
        cache_salt=None,
#if store
        stored=0,
        asynchronous=False,
#fi
#if delays
        delays=0,
#fi
#if lost
        lost_pages=0,
#fi
    ):
        """A request whose prompt is the first ``prompt`` tokens of ``text``; it gets the rest.
#if store

        The store has its first ``stored`` tokens, and loads them beside the steps if
        ``asynchronous``, else within the step that schedules it.
#fi
        """
#if many
        if len(self.live) >= $max_alive:
            return
#fi
        self.texts[request_id], self.told[request_id] = text, prompt
        self.live.append(request_id)
#if contents
        self.memory.prefixes[request_id] = (cache_salt, text)
#fi
#if store
        self.store.stored[request_id] = (stored, asynchronous)
#fi
#if delays
        self.store.delays[request_id] = delays
#fi
#if lost
        self.lost_pages[request_id] = lost_pages
#fi
        request = new_request(request_id, text[:prompt], max_tokens, priority, cache_salt)
        self.scheduler.add_request(request)

    def step(self):
        """Schedule a step and run it; with all steps in flight, process an output first."""
        if len(self.in_flight) == STEPS_IN_FLIGHT:
            self.output()
        if not self.scheduler.has_requests():
            return
#if progress
        busy = $busy
#if reset
        busy, self.was_reset = busy or self.was_reset, False
#fi
#fi
        output = self.scheduler.schedule()
        self.steps += 1
        shares = shares_of(output)
        preempted = sorted(output.preempted_req_ids or ())
        for request_id, start, end in shares:
            print(f"step {self.steps}: request {request_id} computes tokens {start} to {end - 1}")
        for request_id in preempted:
            print(f"step {self.steps}: request {request_id} is preempted")
#if progress
        if len(preempted) == 1 and not busy:
            pools = pools_of(self.scheduler)
            free = all(pool.get_num_free_blocks() == len(pool.blocks) - 1 for pool in pools)
            assert not free, f"request {preempted[0]} runs alone and is preempted"
#fi
#if debt
        for request_id in preempted:
            # Not one that was scheduled again in the same step, or loads.
            if self.scheduler.requests[request_id].status.name == "PREEMPTED":
                kept = self.blocks_of(request_id)
                assert not kept, f"request {request_id} was preempted and still holds {kept}"
#fi
        step = SimpleNamespace(output=output)
        step.sampled = {
            request_id: [self.texts[request_id][end]]
            for request_id, _, end in shares
            if not self.scheduler.requests[request_id].is_prefill_chunk
        }
#if store
        self.start_loads(step)
#fi
#if tables
        self.memory.note(output)
#fi
#if reach
        step.reach = self.memory.reach(shares)
#fi
#if contents
#if store
        for load in step.loads:
            self.memory.fill(load)
#fi
        wrong = self.memory.run(output, shares)
#if !lost
        assert not wrong, "\\n".join(message for *_, message in wrong)
#fi
#if lost
        step.tainted = self.judge(shares, wrong)
#fi
#fi
#if hisparse
        command = parts_of(output)[0].command
        step.transfers = [t.transfer_id for t in command.page_transfers] if command else []
        self.transfers += step.transfers
#fi
        self.in_flight.append(step)
#if checked
        self.check()
#fi
#if store

    def start_loads(self, step):
        """Note the loads that a step carries: its own, and those beside the steps."""
        loads = parts_of(step.output)[-1].loads
        for load in loads:
            print(
                f"step {self.steps}: request {load.request_id} loads tokens {load.start} to "
                f"{load.end - 1} {'beside the steps' if load.asynchronous else 'within the step'}"
            )
#if lost
            load.good_until = self.good_until(load)
#fi
#if !lost&contents
            load.good_until = load.end
#fi
#if reach
        for load in loads:
            first, last = load.start // BLOCK_SIZE, -(-load.end // BLOCK_SIZE)
            written = cells([row[first:last] for row in load.blocks])
            for running in self.in_flight if load.asynchronous else ():
                assert not written & running.reach, (
                    f"the load of request {load.request_id} writes {written & running.reach}, "
                    "which a step in flight uses"
                )
#fi
        self.loads += [load for load in loads if load.asynchronous]
        step.loads = [load for load in loads if not load.asynchronous]
#if lost
        for load in step.loads:
            if load.good_until < load.end:
                print(f"its load fails from token {load.good_until} on")
#if contents
                self.unknown.add(load.request_id)
#fi
#fi
#if lost

    def good_until(self, load):
        """Position from which the store fails to load: whole pages, and the first time only."""
        pages = self.lost_pages.pop(load.request_id, 0)
        # Several groups of a cache share no block ids, so there only a whole load can fail.
        if not pages or (not load.asynchronous and len(load.blocks) > 1):
            return load.end
        return max(load.start, (-(-load.end // BLOCK_SIZE) - pages) * BLOCK_SIZE)

    def invalid_blocks(self, load):
        """The blocks that a failed load did not fill."""
        if load.good_until == load.end:
            return []
        return load.blocks[0][load.good_until // BLOCK_SIZE : -(-load.end // BLOCK_SIZE)]
#fi
#fi
#if lost&contents

    def judge(self, shares, wrong):
        """Only a failed load of which the scheduler cannot know yet may be read; by whom?"""
        tainted = set()
        while fresh := sorted({request_id for request_id, *_ in wrong} - tainted):
            for request_id in fresh:
                found = [(content, message) for r, content, message in wrong if r == request_id]
                unknown = {("lost", r) for r in self.unknown}
                assert all(content in unknown for content, _ in found), "\\n".join(
                    message for _, message in found
                )
                tainted.add(request_id)
                self.memory.spoil(request_id, shares, found[0][0])
            wrong = self.memory.read([share for share in shares if share[0] not in tainted])
        return tainted
#fi

    def output(self):
        """Process the output of the oldest step in flight."""
        if not self.in_flight:
            return
        step = self.in_flight.pop(0)
        request_ids = list(step.output.num_scheduled_tokens)
        runner_output = ModelRunnerOutput(
            req_ids=request_ids,
            req_id_to_index={request_id: i for i, request_id in enumerate(request_ids)},
            sampled_token_ids=[step.sampled.get(request_id, []) for request_id in request_ids],
            logprobs=None,
            prompt_logprobs_dict={},
            pooler_output=[],
#if connector
            kv_connector_output=self.connector_output(step),
#fi
        )
        outputs = self.scheduler.update_from_output(step.output, runner_output)
        for said in [said for client in outputs.values() for said in client.outputs]:
            self.tell(said, step)
#if checked
        self.check()
#fi

    def tell(self, said, step):
        """A client is given tokens."""
        request_id, tokens = said.request_id, list(said.new_token_ids)
        print(f"request {request_id} is given {tokens}, {said.finish_reason or 'goes on'}")
#if lost&contents
        assert not (tokens and request_id in step.tainted), (
            f"request {request_id} is given a token that was computed on a failed load"
        )
#fi
#if delivered
        start = self.told[request_id]
        expected = self.texts[request_id][start : start + len(tokens)]
        assert tokens == expected, f"request {request_id} is given {tokens} instead of {expected}"
#fi
        self.told[request_id] += len(tokens)
        if said.finish_reason is not None and request_id in self.live:
            self.live.remove(request_id)
#if connector

    def connector_output(self, step):
        """What the workers report together with the output of a step."""
#if hisparse
        metadata = HiSparseConnectorWorkerMetadata(
            dict.fromkeys(step.transfers, 1),
            dict.fromkeys(self.completed, 1),
            tuple(copy.dst_block_id for copy in parts_of(step.output)[0].host_block_copies),
        )
        told = metadata != HiSparseConnectorWorkerMetadata({}, {}, ())
        self.completed = []
#fi
#if lost
        invalid = {block for load in step.loads for block in self.invalid_blocks(load)}
#fi
        report = KVConnectorOutput(
#if store
            finished_recving=self.received,
#fi
#if lost
            failed_recving=self.failed,
            invalid_block_ids=self.invalid | invalid,
#fi
#if both
            kv_connector_worker_meta=(
                MultiKVConnectorWorkerMetadata((metadata, None)) if told else None
            ),
#fi
#if hisparse&!store
            kv_connector_worker_meta=metadata if told else None,
#fi
        )
#if lost&contents
        self.unknown -= self.received | {load.request_id for load in step.loads}
#fi
#if store
        self.received = set()
#fi
#if lost
        self.failed, self.invalid = set(), set()
#fi
        return None if report.is_empty() else report
#fi
#if store&complete_load

    def complete_load(self, index=0):
        """A load beside the steps is done; the next output says so."""
        if not self.loads:
            return
        load = self.loads.pop(index % len(self.loads))
        print(f"the load of request {load.request_id} is done")
#if contents
        self.memory.fill(load)
#fi
        self.received.add(load.request_id)
#if lost
        if load.good_until < load.end:
            print(f"it failed from token {load.good_until} on")
#if contents
            self.unknown.add(load.request_id)
#fi
            if len(load.blocks) == 1:
                self.invalid.update(self.invalid_blocks(load))
            else:
                self.failed.add(load.request_id)
#fi
#fi
#if hisparse&complete_transfers

    def complete_transfers(self, count):
        """The oldest page transfers are done; the next output says so."""
        print(f"page transfers done: {self.transfers[:count]}")
        self.completed += self.transfers[:count]
        self.transfers = self.transfers[count:]
#fi
#if abort

    def abort(self, index):
        """A client gives up: that of the request with this index among those that live."""
        if self.live:
            request_id = self.live.pop(index % len(self.live))
            print(f"request {request_id} is aborted")
            self.scheduler.finish_requests(request_id, RequestStatus.FINISHED_ABORTED)
#if checked
            self.check()
#fi
#fi
#if reset

    def reset(self, preempt_running=False):
        """Reset the prefix cache; a scheduler that cannot may raise, and goes on."""
        try:
            done = self.scheduler.reset_prefix_cache(
                reset_running_requests=preempt_running and not self.in_flight
            )
        except RuntimeError as error:
            if type(error) is not RuntimeError:
                raise
            done = False
#if progress
        self.was_reset = self.was_reset or (preempt_running and not self.in_flight)
#fi
        print(f"the prefix cache is {'reset' if done else 'not reset'}")
#if checked
        self.check()
#fi
#fi
#if drain

    def drain(self):
        """Complete all that is pending, at once, and step on until all requests have ended."""
        since_progress = 0
        while self.unfinished():
            before = (sum(self.told.values()), len(self.live))
            self.step()
#if store
            while self.loads:
                self.complete_load()
#fi
#if hisparse
            if self.transfers:
                self.complete_transfers(len(self.transfers))
#fi
            while self.in_flight:
                self.output()
            progress = before != (sum(self.told.values()), len(self.live))
            since_progress = 0 if progress else since_progress + 1
            assert since_progress <= PATIENCE, f"no request gets a token any more: {self.waiting()}"
#if quiescence
        for pool in pools_of(self.scheduler):
            kept = [block for block in pool.blocks if block.ref_cnt and not block.is_null]
            assert not kept, f"all requests have ended, and these blocks are not free: {kept}"
#fi

    def unfinished(self):
        """Whether anything is pending, or any request lives."""
        under_way = $under_way
        return bool(self.live or under_way or self.scheduler.has_requests())

    def waiting(self):
        """Who waits, and what is free."""
        requests = [
            f"request {request_id} is {request.status.name.lower()}, "
            f"{request.num_computed_tokens} of {request.num_tokens} tokens computed, "
            f"preempted {request.num_preemptions} times"
            for request_id, request in self.scheduler.requests.items()
        ]
        pools = [
            f"{pool.get_num_free_blocks()} of {len(pool.blocks) - 1} blocks free"
            for pool in pools_of(self.scheduler)
        ]
        return "; ".join(requests + pools)
#fi
#if debt

    def blocks_of(self, request_id):
        """The blocks in a request's rows, of all groups of the cache."""
        managers = self.scheduler.kv_cache_manager.coordinator.single_type_managers
        rows = [manager.req_to_blocks.get(request_id, ()) for manager in managers]
        return [block for row in rows for block in row if not block.is_null]

    def check(self):
        """No counter of a request is below zero."""
        for request_id, request in self.scheduler.requests.items():
            counters = (
                request.num_computed_tokens,
                request.num_in_flight_tokens,
                request.num_output_placeholders,
            )
            assert min(counters) >= 0, f"request {request_id}: {counters}"
#fi
#if checked&!debt

    def check(self):
        """$sentence"""
        manager = self.scheduler.kv_cache_manager
#if hisparse
        coordinator = get_hisparse_coordinator(manager)
#fi
#if !hisparse
        coordinator = None
#fi
#if accounting
        held = [blocks for _, blocks in self.scheduler.deferred_frees]
        for group in manager.coordinator.single_type_managers:
            held += getattr(group, "_pending_cow_copies", ())
#if hisparse
        held += coordinator._retained_copies.values()
#fi
#fi
#if !accounting
        held = []
#fi
        check(manager, coordinator, held)
#fi


def shares_of(output):
    """The requests of a step: (id, position of its first token in the step, after its last)."""
    start = {new.req_id: new.num_computed_tokens for new in output.scheduled_new_reqs}
    cached = output.scheduled_cached_reqs
    start.update(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
    tokens = output.num_scheduled_tokens
    return [(key, start[key], start[key] + tokens[key]) for key in tokens]
#if connector


def parts_of(output):
    """What each connector tells the workers."""
#if both
    return output.kv_connector_metadata.metadata
#fi
#if !both
    return (output.kv_connector_metadata,)
#fi
#fi
#if drain|progress|quiescence


def pools_of(scheduler):
    """The GPU pool, and the host pool of HiSparse."""
    managers = scheduler.kv_cache_manager.coordinator.single_type_managers
    return list({id(manager.block_pool): manager.block_pool for manager in managers}.values())
#fi
#if reach


def cells(rows):
    """(pool, block) of all blocks in rows of a block table, one row per group."""
    found = set()
    for group, row in enumerate(rows):
        pool = $pool_of_row
        found |= {(pool, block) for block in row if block}
    return found
#fi
'''
