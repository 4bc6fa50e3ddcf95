"""Provisioning: a cache of whole entries, and where packages come from. Nothing of any engine."""
