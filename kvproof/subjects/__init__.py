"""Subjects: whatever can run a program and be checked."""

from kvproof.subjects.naming import has_scheduler, open_scheduler, open_subject
from kvproof.subjects.scheduler import SchedulerSubject, SchedulerTrace
from kvproof.subjects.subject import Level, Snapshots, Subject

__all__ = [
    "Level",
    "SchedulerSubject",
    "SchedulerTrace",
    "Snapshots",
    "Subject",
    "has_scheduler",
    "open_scheduler",
    "open_subject",
]
