"""The words of each level, by its name."""

from kvproof.reports.words.finding import Words
from kvproof.reports.words.manager import MANAGER_WORDS
from kvproof.reports.words.scheduler import SCHEDULER_WORDS
from model.program import Level

WORDS: dict[Level, Words] = {"manager": MANAGER_WORDS, "scheduler": SCHEDULER_WORDS}
