"""Rules of the scheduler level, judged beside the running engine."""
