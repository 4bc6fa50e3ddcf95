"""The gate: everything that must be green before a change to the allocator goes in."""
