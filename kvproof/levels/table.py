"""All levels: the one table through which commands come to them."""

from kvproof.levels import manager, scheduler
from kvproof.levels.level import LevelTools
from model.program import Level

LEVELS: dict[Level, LevelTools] = {"manager": manager.TOOLS, "scheduler": scheduler.TOOLS}
