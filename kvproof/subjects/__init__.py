"""Subjects: whatever can run a program and be checked."""
