"""Fuzzed records and replies: an operation ends in an answer or in an error of ours, and builds nothing foreign."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from typing import Any

import fakeredis
import pytest
import redis
from hypothesis import given, settings
from hypothesis import strategies as st

from redis_ckpt import CheckpointerError, FastSerializer, RedisSaver
from tests.profiles import by_profile
from tests.savers import IDS, cfg, put

EXAMPLES = by_profile(60, 5000)
WORDS = [b"", b"1", b"\x1f", b"\x1d", b"\x1e", b"1e", b"1fmsgpack\x1f\xc1", b"2d"]
WORD = st.binary(max_size=40) | st.sampled_from(WORDS)
REPLY = st.recursive(
    st.none() | st.integers(-(2**40), 2**40) | WORD, lambda inner: st.lists(inner, max_size=6), max_leaves=12
)

Edit = tuple[str, int, Any]
EDIT = st.tuples(st.sampled_from(["put", "drop", "double", "cut", "flip"]), st.integers(0, 10_000), REPLY)
EDITS = st.lists(EDIT, min_size=1, max_size=3)


def seeded() -> fakeredis.FakeRedis:
    client = fakeredis.FakeRedis()
    saver = RedisSaver(redis_client=client)
    for i in range(3):
        log = [f"message {n}, long enough for a delta" * 5 for n in range(6 + i)]
        versions = {"log": f"{i:032}.0.{i}12345678", "n": f"{i:032}.0.{i}12345678"}
        put(saver, i, parent=i - 1 if i else None, log=log, n=i, vers=versions, meta={"run_id": "r"})
        saver.put_writes(cfg("t", "", IDS[i]), [("x", i), ("y", log)], "task")
    put(saver, 1, ns="sub:1", a=1)
    return client


CLIENT = seeded()

OPERATIONS: dict[str, Callable[[RedisSaver], object]] = {
    "get_tuple": lambda s: s.get_tuple(cfg()),
    "by id": lambda s: s.get_tuple(cfg("t", "sub:1", IDS[1])),
    "list": lambda s: list(s.list({"configurable": {"thread_id": "t"}})),
    "filter": lambda s: list(s.list(cfg(), filter={"source": "loop"}, limit=2)),
    "all": lambda s: list(s.list(None)),
    "history": lambda s: s.get_delta_channel_history(config=cfg("t", "", IDS[2]), channels=["x", "log"]),
    "stats": lambda s: s.stats("t"),
    "verify": lambda s: s.verify("t"),
    "dry sweep": lambda s: s.sweep(["t"], keep_last=1, dry_run=True),
    "threads": lambda s: list(s.threads()),
}


def changed(reply: Any, edits: list[Edit]) -> Any:
    """A reply with some parts of it put, dropped, doubled, cut or flipped."""
    reply = copy.deepcopy(reply)
    for edit, at, part in edits:
        if not isinstance(reply, list) or not reply:
            return part
        inner, place = reply, at % len(reply)
        while isinstance(inner[place], list) and inner[place]:
            inner, place = inner[place], at % len(inner[place])
        value = inner[place]
        if edit == "drop":
            del inner[place]
        elif edit == "double":
            inner.insert(place, value)
        elif edit == "cut" and isinstance(value, bytes):
            inner[place] = value[: at % (len(value) + 1)]
        elif edit == "flip" and isinstance(value, bytes) and value:
            where = at % len(value)
            inner[place] = value[:where] + bytes([value[where] ^ (1 + at % 255)]) + value[where + 1 :]
        else:
            inner[place] = part
    return reply


@pytest.mark.parametrize("name", OPERATIONS)
@settings(max_examples=EXAMPLES)
@given(edits=EDITS, number=st.integers(0, 3))
def test_whatever_a_server_answers(name: str, edits: list[Edit], number: int) -> None:
    saver = RedisSaver(redis_client=CLIENT, serde=FastSerializer(allowed_msgpack_modules=[]))
    send, count = saver._wire.send, [0]

    def meddling(trip: Any) -> Any:
        replies = send(trip)
        count[0] += 1
        assert count[0] < 500, "it goes on for ever"
        return [changed(each, edits) for each in replies] if count[0] == number + 1 else replies

    saver._wire.send = meddling  # type: ignore[method-assign]
    with contextlib.suppress(CheckpointerError, redis.RedisError):
        OPERATIONS[name](saver)


@settings(max_examples=EXAMPLES)
@given(
    part=st.sampled_from(["checkpoints", "blobs", "writes"]),
    at=st.integers(0, 1000),
    record=st.binary(max_size=300) | st.integers(0, 10_000),
    name=st.sampled_from(sorted(OPERATIONS)),
)
def test_whatever_stands_in_a_record(part: str, at: int, record: bytes | int, name: str) -> None:
    key = f"ckpt:{{t}}:{part}"
    fields: list[Any] = sorted(CLIENT.hkeys(key))
    field = fields[at % len(fields)]
    whole: Any = CLIENT.hget(key, field)
    CLIENT.hset(key, field, record if isinstance(record, bytes) else whole[: record % (len(whole) + 1)])
    try:
        OPERATIONS[name](RedisSaver(redis_client=CLIENT, serde=FastSerializer(allowed_msgpack_modules=[])))
    except CheckpointerError:
        pass
    finally:
        CLIENT.hset(key, field, whole)
