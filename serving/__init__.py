"""Whole engine steps: a real scheduler, a ghost of its worker, and a store of external KV."""
