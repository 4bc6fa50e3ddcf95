"""vLLM: where it comes from, how it is loaded, and what of it is exported."""
