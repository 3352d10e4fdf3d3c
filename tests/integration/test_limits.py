"""max_value_bytes, what is said of big checkpoints, and what is too large for a server."""

from __future__ import annotations

import logging
import pickle
from typing import Any

import pytest
import redis

from redis_ckpt import RedisSaver, ValueTooLargeError
from redis_ckpt._guards import BIG_BYTES, SERVER_BULK_BYTES, Guards
from tests.savers import IDS, Facade, MakeSaver, cfg, put, values, writes

MOST = 10_000


@pytest.fixture
def limited(make_saver: MakeSaver) -> Facade:
    return make_saver(max_value_bytes=MOST)


def test_a_value_that_is_too_large_is_refused_by_name_and_nothing_is_stored(limited: Facade, raw: redis.Redis) -> None:
    put(limited, 1, small="x", large="x" * (MOST - 3))  # msgpack needs three bytes of its own for such a text
    before = {key: raw.dump(key) for key in raw.scan_iter()}
    with pytest.raises(ValueTooLargeError, match=r"'large'.*10001 bytes.*10000") as caught:
        put(limited, 2, parent=1, small="y", large="x" * (MOST - 2))
    error = pickle.loads(pickle.dumps(caught.value))
    assert (error.thread_id, error.channel, error.size_bytes, error.most_bytes) == ("t", "large", MOST + 1, MOST)
    assert {key: raw.dump(key) for key in raw.scan_iter()} == before
    assert values(limited.get_tuple(cfg()))["small"] == "x"


def test_a_list_that_grows_is_measured_as_a_whole(limited: Facade) -> None:
    """What is stored is what is new, but whoever reads it gets the whole."""
    for i in range(9):
        put(limited, i, parent=i - 1 if i else None, log=["x" * 1000] * (i + 1))
    with pytest.raises(ValueTooLargeError, match="'log'"):
        put(limited, 9, parent=8, log=["x" * 1000] * 10)


def test_a_write_that_is_too_large_is_refused_and_so_are_all_of_its_task(limited: Facade) -> None:
    config = put(limited, 1, a=1)
    limited.put_writes(config, [("x", "x" * (MOST - 3))], "task")
    with pytest.raises(ValueTooLargeError, match="'large'"):
        limited.put_writes(config, [("small", 1), ("large", "x" * (MOST - 2))], "other")
    assert [name for name, _, _ in writes(limited.get_tuple(config))] == ["task"]


def test_metadata_that_are_too_large_are_refused(limited: Facade) -> None:
    with pytest.raises(ValueTooLargeError, match="metadata and versions"):
        put(limited, 1, a=1, meta={"note": "x" * MOST})
    assert limited.get_tuple(cfg()) is None


def test_what_a_server_does_not_take_is_refused_without_a_limit() -> None:
    guards = Guards.of(None, "ignore", None)
    guards.check_size("t", "c", SERVER_BULK_BYTES)
    with pytest.raises(ValueTooLargeError):
        guards.check_size("t", "c", SERVER_BULK_BYTES + 1)


def test_a_big_checkpoint_is_spoken_of_once_for_a_thread(saver: Facade, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "redis_ckpt")
    half = "x" * (BIG_BYTES // 2)
    put(saver, 1, a=half)
    assert caplog.messages == []
    for i in (2, 3):
        for name in ("t", "u"):
            put(saver, i, t=name, parent=i - 1 if i == 3 else None, a=half + "x", b=half + str(i))
    told = [m for m in caplog.messages if "bytes that are new" in m]
    assert [("thread 't'" in m, "thread 'u'" in m) for m in told] == [(True, False), (False, True)]
    assert all("in channel 'a'" in m and IDS[2] in m for m in told)


@pytest.mark.parametrize("limit", [0, -1, True, "1", 1.5])
def test_a_limit_that_is_none_is_refused(limit: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="max_value_bytes"):
        RedisSaver("redis://nowhere", max_value_bytes=limit)


@pytest.mark.parametrize("on_conflict", ["Raise", None, True, "allow"])
def test_a_word_for_conflicts_that_is_none_is_refused(on_conflict: Any) -> None:
    with pytest.raises(ValueError, match="on_conflict must be one of 'ignore', 'raise'"):
        RedisSaver("redis://nowhere", on_conflict=on_conflict)
