"""What may be said of the life of threads and checkpoints, in all its forms, and all that is refused."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from langchain_core.runnables import RunnableConfig

from redis_ckpt import TTL, AsyncRedisSaver, RedisSaver
from redis_ckpt._expiry import MOST_SECONDS, Expiry, count_of, idle_ms_of, seconds_of

NAN, INF = float("nan"), float("inf")

LENGTHS: list[tuple[Any, int]] = [
    (1, 1_000),
    (90.0, 90_000),
    (0.5, 500),
    (0.001, 1),
    (0.0001, 1),
    (5e-324, 1),
    (1.0001, 1_001),
    (2.007, 2_007),
    (timedelta(minutes=2), 120_000),
    (timedelta(days=1, milliseconds=1), 86_400_001),
    (timedelta(milliseconds=2_007), 2_007),
    (timedelta(microseconds=1), 1),
    (timedelta(microseconds=1_001), 2),
    (MOST_SECONDS, 3_153_600_000_000),
]

OUT_OF_RANGE: list[Any] = [
    0,
    0.0,
    -0.0,
    -1,
    -0.001,
    NAN,
    INF,
    -INF,
    10**40,
    MOST_SECONDS * 1.001,
    timedelta(0),
    timedelta(seconds=-1),
    timedelta.max,
]

NO_LENGTH: list[Any] = [True, False, "60", b"60", [60], (60,), {60}, Decimal(60), 60j, ...]


@pytest.mark.parametrize(("given", "idle_ms"), LENGTHS, ids=str)
def test_a_time_is_seconds_or_a_timedelta_rounded_up_to_whole_milliseconds(given: Any, idle_ms: int) -> None:
    found = TTL(given)
    assert (found.idle_ms, found.refresh_on_read) == (idle_ms, False)
    assert type(found.idle_ms) is int
    for form in (given, TTL(given), {"default_ttl": timedelta(milliseconds=idle_ms)}):
        assert Expiry.of(form) == Expiry(idle_ms, False)


@given(st.integers(1, int(MOST_SECONDS * 1000)))
@example(2_007)
@example(270_828_382_225)
def test_whole_milliseconds_stay_what_they_are(ms: int) -> None:
    length = timedelta(milliseconds=ms)
    assert idle_ms_of(length, "ttl") == ms
    assert pickle.loads(pickle.dumps(TTL(length, True))) == TTL(length, True)


@given(st.floats(0, MOST_SECONDS, exclude_min=True))
def test_a_time_is_made_longer_by_less_than_a_millisecond(seconds: float) -> None:
    ms = idle_ms_of(seconds, "ttl")
    assert ms >= 1
    assert -0.01 < ms - seconds * 1000 < 1 or ms == 1  # what no clock tells apart is no part of a millisecond


MINUTES: list[tuple[Any, Expiry]] = [
    ({}, Expiry()),
    ({"default_ttl": None}, Expiry()),
    ({"default_ttl": 1}, Expiry(60_000)),
    ({"default_ttl": 0.5}, Expiry(30_000)),
    ({"default_ttl": 1e-9}, Expiry(1)),
    ({"default_ttl": timedelta(seconds=5)}, Expiry(5_000)),
    ({"default_ttl": 60, "refresh_on_read": True}, Expiry(3_600_000, True)),
    ({"default_ttl": 60, "refresh_on_read": False}, Expiry(3_600_000)),
    ({"refresh_on_read": True}, Expiry(0, True)),
]


@pytest.mark.parametrize(("given", "expected"), MINUTES, ids=str)
def test_a_mapping_is_in_minutes(given: Any, expected: Expiry) -> None:
    assert Expiry.of(given) == expected


def test_without_a_time_there_is_none() -> None:
    assert Expiry.of(None) == Expiry(0, False)
    assert Expiry.of(None, True) == Expiry(0, True)


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("beside", [True, False])
def test_reads_count_where_either_place_says_so(inside: bool, beside: bool) -> None:
    expected = Expiry(60_000, inside or beside)
    assert Expiry.of(TTL(60, inside), beside) == expected
    assert Expiry.of({"default_ttl": 1, "refresh_on_read": inside}, beside) == expected
    assert Expiry.of(60, beside) == Expiry(60_000, beside)


@pytest.mark.parametrize("bad", OUT_OF_RANGE, ids=repr)
def test_a_time_out_of_range_is_a_value_error_in_every_form(bad: Any) -> None:
    config: RunnableConfig = {"configurable": {"checkpoint_ttl": bad}}
    for refused in (
        lambda: TTL(bad),
        lambda: Expiry.of(bad),
        lambda: Expiry.of({"default_ttl": bad}),
        lambda: Expiry().written(config),
        lambda: Expiry().read(config),
    ):
        with pytest.raises(ValueError, match=r"must be more than 0 (seconds|minutes) and at most 100 years"):
            refused()


@pytest.mark.parametrize("bad", NO_LENGTH, ids=repr)
def test_what_is_no_time_is_a_type_error_in_every_form(bad: Any) -> None:
    config: RunnableConfig = {"configurable": {"checkpoint_ttl": bad}}
    for refused in (
        lambda: TTL(bad),
        lambda: Expiry.of(bad),
        lambda: Expiry.of({"default_ttl": bad}),
        lambda: Expiry().written(config),
        lambda: Expiry(refresh_on_read=True).read(config),
    ):
        with pytest.raises(TypeError, match="must be a number of"):
            refused()


def test_a_number_that_no_float_can_hold_is_out_of_range_too() -> None:
    for bad in (10**400, -(10**400)):
        with pytest.raises(ValueError, match="at most 100 years"):
            TTL(bad)


def test_keys_of_a_mapping_that_are_not_known_are_named() -> None:
    with pytest.raises(ValueError, match=r"\['default', 'ttl'\]"):
        Expiry.of({"ttl": 1, "default": 2, "refresh_on_read": True})
    with pytest.raises(ValueError, match=r"\['7'\]"):
        Expiry.of({7: 1})


@pytest.mark.parametrize("bad", [None, 0, 1, "yes", "False", []])
def test_whether_reads_count_is_a_bool(bad: Any) -> None:
    for refused in (
        lambda: TTL(60, bad),
        lambda: Expiry.of(60, bad),
        lambda: Expiry.of(None, bad),
        lambda: Expiry.of({"default_ttl": 60, "refresh_on_read": bad}),
    ):
        with pytest.raises(TypeError, match="refresh_on_read must be True or False"):
            refused()


def test_a_ttl_is_a_value() -> None:
    ttl = TTL(timedelta(minutes=1), refresh_on_read=True)
    assert ttl == TTL(60, True) != TTL(60)
    assert len({ttl, TTL(60.0, True), TTL(60), TTL(61)}) == 3
    assert repr(ttl) == "TTL(60, refresh_on_read=True)"
    assert eval(repr(ttl)) == ttl
    for again in (pickle.loads(pickle.dumps(ttl)), copy.copy(ttl), copy.deepcopy(ttl)):
        assert again == ttl
        assert type(again) is TTL
    for name in ("idle_ms", "refresh_on_read", "other"):
        with pytest.raises((dataclasses.FrozenInstanceError, AttributeError)):
            setattr(ttl, name, 1)


def test_the_own_time_of_a_run_goes_before_that_of_the_saver() -> None:
    saver, bare = Expiry(60_000, True), Expiry(0, False)
    for configurable, written in (
        ({}, 60_000),
        ({"checkpoint_ttl": None}, 60_000),
        ({"checkpoint_ttl": 5}, 5_000),
        ({"checkpoint_ttl": timedelta(milliseconds=7)}, 7),
    ):
        config: RunnableConfig = {"configurable": configurable}
        assert saver.written(config) == saver.read(config) == written
        assert bare.written(config) == (written if configurable.get("checkpoint_ttl") else 0)
        assert bare.read(config) is None


@pytest.mark.parametrize("good", [0, 0.0, timedelta(0), 1, 2.5, timedelta(days=1)])
def test_an_age_may_be_zero(good: Any) -> None:
    seconds = seconds_of(good, "older_than", zero=True)
    assert type(seconds) is float
    assert timedelta(seconds=seconds) == (good if isinstance(good, timedelta) else timedelta(seconds=good))


@pytest.mark.parametrize("bad", [bad for bad in OUT_OF_RANGE if bad not in (0, timedelta(0))], ids=repr)
def test_an_age_is_otherwise_as_any_time(bad: Any) -> None:
    with pytest.raises(ValueError, match="older_than must be 0 or more seconds"):
        seconds_of(bad, "older_than", zero=True)


def test_how_many_stay_is_a_whole_number_from_1_on() -> None:
    assert [count_of(good, "keep_last") for good in (None, 1, 2, 10**9)] == [None, 1, 2, 10**9]
    for low in (0, -1, -(10**30)):
        with pytest.raises(ValueError, match="keep_last must be 1 or more"):
            count_of(low, "keep_last")
    for bad in (True, False, 1.0, "1", b"1", [1], NAN, timedelta(1)):
        with pytest.raises(TypeError, match="keep_last must be a number"):
            count_of(bad, "keep_last")


SAVER_ARGUMENTS: list[tuple[dict[str, Any], type[Exception]]] = [
    *(({"ttl": bad}, ValueError) for bad in (-1, 0, NAN, INF, timedelta(0), {"default_ttl": 0}, {"minutes": 5})),
    *(({"ttl": bad}, TypeError) for bad in (True, "60", [60], {"default_ttl": "60"}, {"refresh_on_read": 1})),
    *(({"refresh_on_read": bad}, TypeError) for bad in (None, 1, "yes")),
    *(({"keep_last": bad}, ValueError) for bad in (0, -1)),
    *(({"keep_last": bad}, TypeError) for bad in (True, 1.5, "1")),
]


@pytest.mark.parametrize("kind", [RedisSaver, AsyncRedisSaver])
@pytest.mark.parametrize(("bad", "error"), SAVER_ARGUMENTS, ids=str)
def test_a_saver_refuses_at_once_what_it_could_not_keep(kind: Any, bad: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        kind("redis://localhost:1", **bad)
