"""The reference allocator: what the block pool, prefix cache and HiSparse do, in plain Python.

Standard library only. Everything here is written from the behaviour of the released engines,
with the simplest data structure that shows it, so that the model can serve as an oracle.
"""
