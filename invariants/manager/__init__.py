"""Rules of the manager level, judged on the states of one trace."""
