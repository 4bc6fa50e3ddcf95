"""Stand-alone tests for vLLM, made from case files."""
