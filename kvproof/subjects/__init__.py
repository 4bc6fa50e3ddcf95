"""Subjects: whatever can run a program and be checked."""

from kvproof.subjects.naming import open_subject
from kvproof.subjects.subject import Snapshots, Subject

__all__ = ["Snapshots", "Subject", "open_subject"]
