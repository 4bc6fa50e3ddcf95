"""The languages of all levels."""

from typing import Any

from model.manager.program import MANAGER
from model.program import Language, Level
from model.scheduler.program import SCHEDULER

LANGUAGES: dict[Level, Language[Any, Any]] = {
    language.level: language for language in (MANAGER, SCHEDULER)
}
