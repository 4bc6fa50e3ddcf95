"""The level of the scheduler: whole engine steps, a ghost of the worker, a store of external KV."""
