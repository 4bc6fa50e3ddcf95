"""Theorems on admission: over the functions of ``model.admission``, for all integers.

Sources: ``eager`` is the first release, ``charged`` is #57457, ``deferred`` is #59282 and every
later release. F are free blocks, e free blocks of the hit (touched first), n blocks to be popped,
k free GPU copies of the hit's host pages, w the watermark, r reserved blocks.
"""

from invariants.proofs.admission.copies import (
    a_pop_spares_the_copies,
    a_pop_takes_a_copy,
    all_kept_first,
    all_kept_if_charged_admits,
    blocks_behind_cost_copies,
    kept_is_a_count,
    more_behind_keeps_no_more,
)
from invariants.proofs.admission.eager import (
    eager_is_sound,
    eager_is_sound_beside_the_producer,
    eager_is_sound_in_the_code,
    no_smaller_crash,
    no_smaller_crash_in_the_code,
)
from invariants.proofs.admission.gates import (
    a_hit_leaves_a_page,
    full_gate_covers_a_cold_step,
    gates_agree_within_the_window,
    larger_windows_need_more,
    no_shortage_costs_nothing,
    sentinel_refuses,
    the_host_fits,
)
from invariants.proofs.admission.proposals import (
    charged_is_weakest,
    charging_less_crashes,
    deferred_admits_more,
    deferred_admits_what_charged_does,
    deferred_is_optimal,
    deferred_is_optimal_in_tokens,
)
from invariants.proofs.admission.soundness import (
    charged_begins,
    charged_is_sound,
    charges_add_up,
    deferred_begins,
    deferred_is_sound,
    every_pop_fits,
    hits_pay_for_their_pops,
    running_is_sound,
    running_requests_pay_for_their_pops,
)
from invariants.proofs.admission.window import (
    crash_window,
    eager_bound,
    margin_saves,
    margin_saves_one_more,
    window_has_k_values,
    window_in_a_pool,
)
from invariants.proofs.obligation import Obligation
from model.releases import first_with

EAGER = first_with(adopt_at="commit")
"""The release that pins the copies of a hit first and does not charge them."""

OBLIGATIONS: tuple[Obligation, ...] = (
    Obligation("hits-pay", "A waiting request is charged exactly what it touches and pops.",
               ("I4", "I6"), hits_pay_for_their_pops),
    Obligation("running-pays", "A running request is charged exactly what it pops.",
               ("I4", "I6"), running_requests_pay_for_their_pops),
    Obligation("groups-add-up", "One more resident group adds exactly its own pops.",
               ("I4",), charges_add_up),
    Obligation("pops-fit", "While free ≥ remaining, the next pop fits and keeps free ≥ remaining.",
               ("I4",), every_pop_fits),
    Obligation("deferred-begins", "deferred: an admitted hit begins its pops with enough free.",
               ("I4",), deferred_begins),
    Obligation("charged-begins", "charged: an admitted hit begins its pops with enough free.",
               ("I4",), charged_begins),
    Obligation("deferred-sound", "deferred: admitted implies that all pops fit, in tokens of any "
               "block size.", ("I4",), deferred_is_sound),
    Obligation("charged-sound", "charged: admitted implies that all pops fit, in tokens of any "
               "block size.", ("I4",), charged_is_sound),
    Obligation("running-sound", "A running request that is granted tokens gets its blocks.",
               ("I4",), running_is_sound),
    Obligation("eager-unsound", "eager: admitted implies that all pops fit.",
               ("I4",), eager_is_sound, "refuted"),
    Obligation("eager-unsound-in-code", f"eager: the same, for a hit that vLLM {EAGER.version} "
               "can meet.",
               ("I4",), eager_is_sound_in_the_code, "refuted"),
    Obligation("eager-unsound-shared", "eager: the same, while the hit's producer still runs.",
               ("I4",), eager_is_sound_beside_the_producer, "refuted"),
    Obligation("eager-least", "eager: no crash has fewer than 1 free block.",
               ("I4",), no_smaller_crash),
    Obligation("eager-least-in-code", f"eager: no crash of vLLM {EAGER.version} whose producer has "
               "ended has fewer than 4 free blocks.", ("I4",), no_smaller_crash_in_the_code),
    Obligation("eager-bound", "eager: an admitted hit is safe exactly if F ≥ e + n + k.",
               ("I4",), eager_bound),
    Obligation("crash-window", "eager, no margin: it crashes exactly at e + n ≤ F < e + n + k.",
               ("I4",), crash_window),
    Obligation("crash-window-size", "eager, no margin: exactly k counts of free blocks crash.",
               ("I4",), window_has_k_values),
    Obligation("crash-window-in-pool", "eager, no margin, copies among the F free blocks: exactly "
               "min(n, k) counts crash.", ("I4",), window_in_a_pool),
    Obligation("margin-saves", "eager: never a crash while k ≤ w + r.",
               ("I4",), margin_saves),
    Obligation("margin-exact", "eager: never a crash while k = w + r + 1.",
               ("I4",), margin_saves_one_more, "refuted"),
    Obligation("charged-weakest", "charged, no margin: it admits exactly what the eager order can "
               "serve.", ("I4", "I6"), charged_is_weakest),
    Obligation("charge-all", "Charging fewer than the k copies admits a hit that crashes.",
               ("I4",), charging_less_crashes),
    Obligation("deferred-optimal", "deferred, no margin: whatever fits is admitted.",
               ("I6",), deferred_is_optimal),
    Obligation("deferred-optimal-in-tokens", "deferred, no margin: a hit that fits is admitted, in "
               "tokens of any block size.", ("I6",), deferred_is_optimal_in_tokens),
    Obligation("deferred-admits-all", "deferred admits whatever charged admits.",
               ("I6",), deferred_admits_what_charged_does),
    Obligation("deferred-admits-more", "With a free copy, deferred admits at F = e + n + w + r and "
               "charged refuses.", ("I6",), deferred_admits_more),
    Obligation("kept-first", "Before any pop all k copies are kept.", ("I11",), all_kept_first),
    Obligation("kept-spared", "A pop costs no copy while another block is queued before them.",
               ("I11",), a_pop_spares_the_copies),
    Obligation("kept-taken", "A pop costs one copy when a copy is at the head of the queue.",
               ("I11",), a_pop_takes_a_copy),
    Obligation("kept-all", "Copies last in the queue: all are kept exactly if charged would admit.",
               ("I11",), all_kept_if_charged_admits),
    Obligation("kept-behind", "With z blocks behind, all are kept exactly if F ≥ e + n + k + z.",
               ("I11",), blocks_behind_cost_copies),
    Obligation("kept-range", "Copies kept are never more than k and never negative.",
               ("I11",), kept_is_a_count),
    Obligation("kept-monotone", "More blocks behind the copies never keep more of them.",
               ("I11",), more_behind_keeps_no_more),
    Obligation("last-token", "A hit pops a block or more in each group, whatever the block size.",
               ("I4",), a_hit_leaves_a_page),
    Obligation("host-sentinel", "A host shortage is refused by every GPU pool, at both gates.",
               ("I4", "I14"), sentinel_refuses),
    Obligation("host-silent", "Without a host shortage the sentinel is 0.",
               ("I6", "I14"), no_shortage_costs_nothing),
    Obligation("host-sound", "Where the sentinel is silent all host pops fit.",
               ("I4", "I14"), the_host_fits),
    Obligation("window-monotone", "A larger in-flight window never asks for less, and no window "
               "asks for most.", ("I6",), larger_windows_need_more),
    Obligation("gates-cold", "A cold request that passes the full-sequence gate passes the gate of "
               "its first step.", ("I4", "I6"), full_gate_covers_a_cold_step),
    Obligation("gates-agree", "A sequence within the window is asked the same at both gates.",
               ("I6",), gates_agree_within_the_window),
)  # fmt: skip
