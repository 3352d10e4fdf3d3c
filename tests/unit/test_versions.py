"""Versions grow, stay exact, and keep the kind they began with."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redis_ckpt._versions import next_version


def test_a_thread_of_our_own_counts_in_integers_of_53_bits() -> None:
    version = None
    for _ in range(1000):
        following = next_version(version)
        assert type(following) is int
        assert following > (version or 0)
        assert following < 2**53
        assert json.loads(json.dumps(following)) == following == int(float(following))
        version = following


def test_two_branches_never_share_a_version() -> None:
    start = next_version(None)
    assert len({next_version(start) for _ in range(10_000)}) > 9_990


@given(st.integers(0, 2**62))
def test_an_integer_is_followed_by_a_greater_integer(current: int) -> None:
    following = next_version(current)
    assert type(following) is int
    assert following > current


@given(st.floats(0, 2**52, allow_nan=False))
def test_a_float_is_followed_by_a_greater_float(current: float) -> None:
    following = next_version(current)
    assert type(following) is float
    assert following > current


@given(st.text(max_size=20) | st.integers(0, 10**40).map(lambda n: f"{n:032}.0.5") | st.just("7"))
def test_a_text_is_followed_by_a_greater_text(current: str) -> None:
    following = next_version(current)
    assert isinstance(following, str)
    assert following > current


@pytest.mark.parametrize("current", ["00000000000000000000000000000003.0.12", f"{9:032}.0.9999999"])
def test_the_form_of_other_savers_is_kept(current: str) -> None:
    following = str(next_version(current))
    step, _, random = following.partition(".")
    assert len(step) == 32
    assert int(step) == int(current.partition(".")[0]) + 1
    assert random.isdecimal()
