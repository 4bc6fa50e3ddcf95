"""Expectations: names stay names, ranges mean the releases that have a row."""

import pytest

from model.releases import VERSIONS
from specs.expectations import Expectation, expected, is_range, named

SEEN = ("0.30.0", "0.31.0", "0.33.1")


@pytest.mark.parametrize(
    ("entry", "means"),
    [
        ("vllm>=0.30,<0.31", ("vllm==0.30.0",)),
        ("vllm>=0.31", ("vllm==0.31.0", "vllm==0.33.1")),
        ("vllm<0.30", ()),
        ("vllm!=0.31.0", ("vllm==0.30.0", "vllm==0.33.1")),
        ("vllm~=0.33.0", ("vllm==0.33.1",)),
        ("vllm==0.32.0", ("vllm==0.32.0",)),
        ("vllm@/a/checkout", ("vllm@/a/checkout",)),
        ("reference:eager", ("reference:eager",)),
        ("mine", ("mine",)),
    ],
)
def test_a_range_means_the_releases_with_a_row_and_a_name_itself(
    entry: str, means: tuple[str, ...]
) -> None:
    assert named([entry], SEEN) == means


def test_each_subject_is_named_once_and_in_order() -> None:
    entries = ("reference:eager", "vllm>=0.31", "vllm==0.31.0", "vllm<0.31")
    assert named(entries, SEEN) == (
        "reference:eager", "vllm==0.31.0", "vllm==0.33.1", "vllm==0.30.0",
    )  # fmt: skip


def test_nothing_is_expected_of_a_release_that_has_no_row() -> None:
    expect = Expectation("I7", fails=("vllm>=0.30",), passes=("reference:charged",))
    assert expected(expect, f"vllm=={VERSIONS[-1]}") == "fails"
    assert expected(expect, "vllm==99.0.0") is None
    assert expected(expect, "vllm@/a/checkout") is None
    assert expected(expect, "reference:charged") == "passes"


def test_the_name_of_one_release_is_no_range() -> None:
    assert not is_range(f"vllm=={VERSIONS[0]}")
    assert is_range("vllm>=0.30")
    assert not is_range("vllm@/tmp/>=")
