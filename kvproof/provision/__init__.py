"""Provisioning: any vLLM to be checked, made ready in a cache folder of the user's."""

from kvproof.provision.cache import CACHE_VARIABLE, cache_root
from kvproof.provision.engine import Engine, provision_checkout, provision_release
from kvproof.provision.environment import Load, engine_python
from kvproof.provision.release import (
    Release,
    list_provisioned,
    release_source,
    remove_provisioned,
)

__all__ = [
    "CACHE_VARIABLE",
    "Engine",
    "Load",
    "Release",
    "cache_root",
    "engine_python",
    "list_provisioned",
    "provision_checkout",
    "provision_release",
    "release_source",
    "remove_provisioned",
]
