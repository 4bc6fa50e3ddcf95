"""Which rules are judged at which level, and the sentence of each."""

from typing import Literal

from invariants.rules import RULES

Level = Literal["manager", "scheduler"]

SENTENCES = {rule.id: rule.sentence for rule in RULES} | {
    "I15": "Who writes a block is ordered after every step in flight that uses it.",
    "I17": "A preemption leaves no debt and frees blocks, or is not done.",
    "I18": "The bookkeeping of a step is proportional to its new work.",
    "lockstep": "Both sides answer and move alike at every step.",
    "crash": "The engine's process survives every program.",
    "hang": "The engine answers every program in time.",
}
"""By rule, and by what a program can come to besides."""

SCHEDULER_SENTENCES = {
    "I16": "With finite work every request ends, and one that is alone is never preempted.",
    "I19": "No step of the scheduler raises.",
}
"""Where a rule says more about the whole scheduler than about the allocator."""

SCHEDULER_RULES = ("I1", "I2", "I4", "I7", "I10", "I12", "I13", "I15", "I16", "I17", "I19")
"""Those that a program can break; I18 compares the effort of two steps, and needs no program."""

SCHEDULER_BY_DESIGN = {
    "vllm-0.30.0": {"I18": "0.30.0 walks all pages of a request in every step"},
    "vllm-0.31.0": {"I18": "0.31.0 walks all pages of a request in every step"},
}
"""By dialect, rules of the scheduler's level that a release breaks by design, with the reason."""

ENDINGS: dict[Level, tuple[str, ...]] = {
    "manager": ("lockstep", "crash", "hang"),
    "scheduler": ("crash", "hang"),
}
"""What a program can come to besides a broken rule."""

RULES_OF: dict[Level, tuple[str, ...]] = {
    "manager": (*(rule.id for rule in RULES), *ENDINGS["manager"]),
    "scheduler": (*SCHEDULER_RULES, *ENDINGS["scheduler"]),
}
"""All that can be reported at a level."""


def sentence_of(rule: str, level: Level = "manager") -> str:
    own = SCHEDULER_SENTENCES if level == "scheduler" else {}
    return own.get(rule, SENTENCES[rule])
