"""The level of the KV-cache manager: actions, configuration, and the session that drives it."""
