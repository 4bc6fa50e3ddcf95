"""The inductive invariant of the transition system."""
