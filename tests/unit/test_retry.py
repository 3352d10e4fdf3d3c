"""Patience: what is sent once more, how often, and after which pauses."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from typing import Any

import fakeredis
import pytest
import redis
import redis.asyncio
import redis.backoff
import redis.retry
import valkey

from redis_ckpt import AsyncRedisSaver, RedisSaver, Retry
from redis_ckpt._retry import is_transient

NOWHERE = "redis://127.0.0.1:1"
CONFIG: Any = {"configurable": {"thread_id": "t"}}
BOTH = pytest.mark.parametrize("saver_class", [RedisSaver, AsyncRedisSaver])

Read = Callable[[Any], object]


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that were asked for; none is kept."""
    asked: list[float] = []
    real = asyncio.sleep

    async def asleep(seconds: float, result: Any = None) -> Any:
        if seconds:
            asked.append(seconds)
        return await real(0, result)

    monkeypatch.setattr(time, "sleep", asked.append)
    monkeypatch.setattr("redis.retry.sleep", asked.append)
    monkeypatch.setattr(asyncio, "sleep", asleep)
    return asked


def read(saver: Any) -> object:
    """The latest checkpoint, in the saver's own colour."""
    if isinstance(saver, RedisSaver):
        return saver.get_tuple(CONFIG)

    async def get() -> object:
        async with saver:
            return await saver.aget_tuple(CONFIG)

    return asyncio.run(get())


def failing(saver: Any, monkeypatch: pytest.MonkeyPatch, *outcomes: Any) -> list[int]:
    """Let the round trips of a saver end so, the last one again and again; answers how many there were."""
    count = [0]

    def next_outcome() -> Any:
        outcome = outcomes[min(count[0], len(outcomes) - 1)]
        count[0] += 1
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def send(trip: Any) -> Any:
        return next_outcome()

    async def asend(line: Any, trip: Any) -> Any:
        return next_outcome()

    monkeypatch.setattr(saver._wire, "_send", send if isinstance(saver, RedisSaver) else asend)
    return count


@BOTH
def test_a_server_that_is_not_there_is_asked_a_bounded_number_of_times(saver_class: Any, pauses: list[float]) -> None:
    with pytest.raises(redis.ConnectionError, match=r"127\.0\.0\.1:1"):
        read(saver_class(NOWHERE))
    assert len(pauses) == 10
    assert all(0 <= pause <= min(1.0, 0.05 * 2**n) for n, pause in enumerate(pauses))
    assert len(set(pauses)) > 5  # a random part of each, so that workers do not come back all at once


@BOTH
@pytest.mark.parametrize(
    "error",
    [
        redis.exceptions.ConnectionError("Connection reset by peer"),
        redis.exceptions.TimeoutError("Timeout reading from socket"),
        redis.exceptions.BusyLoadingError("LOADING"),
        redis.sentinel.MasterNotFoundError("no primary"),
        redis.exceptions.ClusterError("TTL exhausted."),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_passes_is_waited_for(
    saver_class: Any, error: Exception, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    saver = saver_class(NOWHERE)
    count = failing(saver, monkeypatch, error, error, [None])
    assert read(saver) is None
    assert (count, len(pauses)) == ([3], 2)


@BOTH
@pytest.mark.parametrize("name", ["ReadOnlyError", "TryAgainError", "ClusterDownError", "MasterDownError"])
def test_replies_that_pass_are_waited_for_and_at_last_raised_as_they_are(
    saver_class: Any, name: str, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    reply = getattr(redis.exceptions, name)("not now")
    saver = saver_class(NOWHERE, retry=Retry(attempts=4))
    count = failing(saver, monkeypatch, [reply], [reply], [None])
    assert read(saver) is None
    assert count == [3]
    saver = saver_class(NOWHERE, retry=Retry(attempts=4))
    count = failing(saver, monkeypatch, [reply])
    with pytest.raises(type(reply), match="not now") as caught:
        read(saver)
    assert (caught.value, count) == (reply, [5])


@BOTH
@pytest.mark.parametrize(
    "outcome",
    [
        redis.exceptions.AuthenticationError("wrong password"),
        redis.exceptions.MaxConnectionsError("too many"),
        redis.exceptions.DataError("no bytes"),
        [redis.exceptions.OutOfMemoryError("OOM command not allowed")],
        [redis.exceptions.NoPermissionError("NOPERM")],
    ],
    ids=str,
)
def test_what_does_not_pass_is_raised_at_once(
    saver_class: Any, outcome: Any, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    saver = saver_class(NOWHERE)
    count = failing(saver, monkeypatch, outcome)
    with pytest.raises(redis.exceptions.RedisError):
        read(saver)
    assert (count, pauses) == ([1], [])


@BOTH
def test_none_means_none(saver_class: Any, pauses: list[float]) -> None:
    with pytest.raises(redis.ConnectionError):
        read(saver_class(NOWHERE, retry=Retry(attempts=0)))
    assert pauses == []


def test_options_of_redis_py_for_it_go_before_ours(pauses: list[float]) -> None:
    theirs = {"retry": redis.retry.Retry(redis.backoff.ConstantBackoff(7), 3)}
    with pytest.raises(redis.ConnectionError):
        read(RedisSaver(NOWHERE, connection_args=theirs))
    assert set(pauses) == {7}
    with pytest.raises(ValueError, match="not both"):
        RedisSaver(NOWHERE, connection_args=theirs, retry=Retry())


def test_a_client_that_is_given_repeats_by_its_own_policy() -> None:
    with pytest.raises(ValueError, match="its own policy"):
        RedisSaver(redis_client=fakeredis.FakeRedis(), retry=Retry())
    with pytest.raises(ValueError, match="its own policy"):
        AsyncRedisSaver(redis_client=fakeredis.FakeAsyncRedis(), retry=Retry())
    assert RedisSaver(redis_client=fakeredis.FakeRedis())._wire._patience.attempts == 0


def test_classes_of_valkey_py_are_known() -> None:
    assert is_transient(valkey.exceptions.ConnectionError())
    assert is_transient(valkey.exceptions.ReadOnlyError())
    assert not is_transient(valkey.exceptions.AuthenticationError())
    assert not is_transient("ConnectionError")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"attempts": -1}, ValueError),
        ({"attempts": 1.5}, TypeError),
        ({"attempts": True}, TypeError),
        ({"base_seconds": -1}, ValueError),
        ({"cap_seconds": math.inf}, ValueError),
        ({"cap_seconds": math.nan}, ValueError),
        ({"cap_seconds": "1"}, TypeError),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match=f"{next(iter(options))} of Retry"):
        Retry(**options)


def test_pauses_are_bounded_however_many() -> None:
    pauses = list(Retry(attempts=5000, cap_seconds=0.5).pauses())
    assert len(pauses) == 5000
    assert max(pauses) <= 0.5


def test_something_else_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Retry\(\.\.\.\)"):
        RedisSaver(NOWHERE, retry=3)  # type: ignore[arg-type]
