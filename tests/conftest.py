"""What all tests share: the releases, provisioned once, and the marker of full loading."""

from __future__ import annotations

import os

import pytest

from kvproof.engines.vllm.engine import provision_release
from model.releases import VERSIONS

FULL_VARIABLE = "KVPROOF_TEST_FULL"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "full: needs full loading, an environment of 2.3 GB")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get(FULL_VARIABLE) == "1":
        return
    reason = f"full loading installs 2.3 GB; set {FULL_VARIABLE}=1 to run it"
    for item in items:
        if item.get_closest_marker("full"):
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session", autouse=True)
def provisioned() -> None:
    """Tests run side by side: none is to tell of provisioning, or to wait for it."""
    for version in VERSIONS:
        provision_release(version, "focused")
