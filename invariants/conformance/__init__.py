"""Call logs: the calls that a scheduler made into an allocator, played on the reference model."""
