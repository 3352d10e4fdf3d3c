"""What was put comes back: types, odd text, versions of any kind, metadata."""

from __future__ import annotations

import enum
import logging
import threading
import types
from collections import deque
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pytest
import redis
from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import get_checkpoint_metadata
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from tests.savers import IDS, Facade, MakeSaver, arguments, cfg, checkpoint, put, steps, values, writes
from tests.servers import on_fake, on_real_servers

SERDE = JsonPlusSerializer()


class Color(enum.Enum):
    RED = "red"


EXACT = {
    "d": Decimal("1.10"),
    "q": deque([1, 2]),
    "f": frozenset({1}),
    "n": np.arange(3),
    "nan": float("nan"),
    "u": UUID(int=5),
    "k": {1: "x"},
    "e": Color.RED,
    "m": [HumanMessage("hi", id="1")],
    "raw": {"b": b"\x00\xff"},
    "dt": datetime(2026, 1, 1, tzinfo=timezone.utc),
    "tuple": (1, (2,)),
    "none": None,
    "bytes": b"\xff\xfe",
    "bytearray": bytearray(b"\x80"),
    "empty": "",
    "big": 2**63,
    "lc": {"lc": 1, "type": "constructor", "id": ["builtins", "dict"], "kwargs": {}},
    "marker": {"__interrupt__": [1], "__error__": "no"},
}


def same(found: Any, value: Any) -> bool:
    """Whether `found` is what the serialiser makes of `value`: in type, and in every byte."""
    expected = SERDE.loads_typed(SERDE.dumps_typed(value))
    return type(found) is type(expected) and SERDE.dumps_typed(found) == SERDE.dumps_typed(expected)


@pytest.mark.parametrize("protocol", [2, 3])
def test_values_and_writes_come_back_in_type_and_value(saver: Facade) -> None:
    put(saver, 1, **EXACT)
    saver.put_writes(cfg("t", "", IDS[1]), list(EXACT.items()), "k")
    (listed,) = saver.list(cfg())
    for found in (saver.get_tuple(cfg()), listed):
        state = values(found)
        assert state.keys() == EXACT.keys()
        assert [name for name in EXACT if not same(state[name], EXACT[name])] == []
        pending = {channel: value for _, channel, value in writes(found)}
        assert [name for name in EXACT if not same(pending[name], EXACT[name])] == []


def test_nul_and_escapes_are_kept_byte_for_byte(saver: Facade) -> None:
    meta = {"note": "p\x00q", "lit": "p\\u0000q", "k\x00": 1}
    put(saver, 1, a="x\x00y", meta=meta)
    put(saver, 2, t="nul\x00id", a=1)
    found = saver.get_tuple(cfg())
    assert found is not None
    assert values(found) == {"a": "x\x00y"}
    assert found.metadata == {"source": "loop", "step": 1, **meta}
    for key, value in meta.items():
        assert steps(saver.list(cfg(), filter={key: value})) == [1]
    assert saver.list(cfg(), filter={"note": "pq"}) == []
    assert values(saver.get_tuple(cfg("nul\x00id"))) == {"a": 1}
    assert saver.get_tuple(cfg("nulid")) is None


def test_a_lone_surrogate_is_what_the_serialiser_makes_of_it(saver: Facade) -> None:
    text = "bad \ud800 text"
    put(saver, 3, a=text, meta={"note": text})
    saver.put_writes(cfg("t", "", IDS[3]), [("x", text)], "k")
    expected = SERDE.loads_typed(SERDE.dumps_typed(text))
    found = saver.get_tuple(cfg())
    assert found is not None
    assert values(found) == {"a": expected}
    assert found.metadata == {"source": "loop", "step": 3, "note": expected}
    assert writes(found) == [("k", "x", expected)]


@pytest.mark.parametrize("value", [np.float64(1), threading.Lock(), object()], ids=["float64", "lock", "object"])
def test_a_value_that_cannot_be_serialised_names_its_channel_and_leaves_no_key(
    saver: Facade, raw: redis.Redis, value: Any
) -> None:
    with pytest.raises(TypeError, match="odd_channel"):
        put(saver, 1, a=1, odd_channel=value)
    with pytest.raises(TypeError, match="odd_channel"):
        # not new, so it is looked at only if the server lacks it
        put(saver, 1, a=1, odd_channel=value, new={})
    with pytest.raises(TypeError, match="odd_channel"):
        saver.put_writes(cfg("t", "", IDS[1]), [("x", 1), ("odd_channel", value)], "k")
    with pytest.raises(TypeError, match="metadata"):
        put(saver, 1, a=1, meta={"note": value})
    assert list(raw.scan_iter()) == []


def test_what_the_caller_changes_afterwards_is_not_stored(saver: Facade) -> None:
    state: Any = {"list": [1]}
    config, point, metadata, versions = arguments(1, **state)
    saver.put(config, point, metadata, versions)
    state["list"].append(2)
    point["channel_values"]["list"] = "changed"
    point["channel_versions"]["list"] = "changed"
    assert values(saver.get_tuple(cfg())) == {"list": [1]}


def test_a_value_that_is_not_new_and_not_stored_is_stored_all_the_same(saver: Facade) -> None:
    put(saver, 1, a="A", b="B", new={})
    assert values(saver.get_tuple(cfg())) == {"a": "A", "b": "B"}


def test_a_new_version_without_a_value_is_no_value(saver: Facade) -> None:
    """A channel that was emptied has a version, and its old value must not come back."""
    put(saver, 1, a="A", b="B", vers={"a": 1, "b": 1})
    put(saver, 2, parent=1, a="A", vers={"a": 1, "b": 2}, new={"b": 2})
    assert values(saver.get_tuple(cfg())) == {"a": "A"}
    put(saver, 3, parent=2, vers={"a": 1, "b": 2}, new={"a": 1})
    assert values(saver.get_tuple(cfg())) == {}
    assert values(saver.get_tuple(cfg("t", "", IDS[1]))) == {"b": "B"}


def test_versions_keep_their_kind_and_the_next_one_is_greater(saver: Facade) -> None:
    foreign: dict[str, Any] = {"s": "00000000000000000000000000000003.0.12", "i": 7, "f": 7.0, "g": 7.5, "n": -1}
    put(saver, 1, vers=foreign, **dict.fromkeys(foreign, "old"))
    found = saver.get(cfg())
    assert found is not None
    assert found["channel_versions"] == foreign
    assert {k: type(v) for k, v in found["channel_versions"].items()} == {k: type(v) for k, v in foreign.items()}
    following = {k: saver.get_next_version(v) for k, v in found["channel_versions"].items()}
    for name, value in following.items():
        assert type(value) is type(foreign[name])
        assert value > foreign[name]
    put(saver, 2, parent=1, vers=following, **dict.fromkeys(following, "new"))
    assert values(saver.get_tuple(cfg())) == dict.fromkeys(foreign, "new")
    assert values(saver.get_tuple(cfg("t", "", IDS[1]))) == dict.fromkeys(foreign, "old")


def test_versions_grow_and_branches_never_share_one(saver: Facade) -> None:
    current: Any = None
    for _ in range(100):
        following = saver.get_next_version(current)
        assert current is None or following > current
        assert isinstance(following, int)
        assert following < 2**53
        current = following
    assert len({saver.get_next_version(current) for _ in range(100)}) == 100


def test_a_thread_of_another_saver_goes_on_here(saver: Facade) -> None:
    other = InMemorySaver()
    name: Any = None
    for i in range(3):
        name = other.get_next_version(name, None)
        put(other, i, parent=i - 1 if i else None, a=i, vers={"a": name})
    for item in reversed(list(other.list(cfg()))):
        saver.put(item.parent_config or cfg(), item.checkpoint, item.metadata, item.checkpoint["channel_versions"])
    assert saver.list(cfg()) == list(other.list(cfg()))
    latest = saver.get(cfg())
    assert latest is not None
    following = saver.get_next_version(latest["channel_versions"]["a"])
    assert max(following, latest["channel_versions"]["a"]) == following


def test_metadata_are_merged_with_what_the_config_adds(saver: Facade) -> None:
    config: RunnableConfig = {
        "configurable": {
            **cfg()["configurable"],
            "user": "u1",
            "level": 3,
            "__secret": "no",
            "obj": [1],
            "step": "not this one",
        },
        "metadata": {"tenant": "acme", "user": "from metadata", "langgraph_step": 5, "ratio": 0.5},
    }
    _, point, metadata, versions = arguments(1, a=1)
    saver.put(config, point, metadata, versions)
    found = saver.get_tuple(cfg())
    assert found is not None
    assert found.metadata == get_checkpoint_metadata(config, metadata)
    assert steps(saver.list(cfg(), filter={"tenant": "acme", "level": 3, "ratio": 0.5})) == [1]
    assert steps(saver.list(cfg(), filter={"user": "from metadata"})) == [1]


@pytest.mark.parametrize("v", [1, 2, 3])
def test_older_formats_of_checkpoints_come_back_whole(saver: Facade, v: int) -> None:
    point: Any = {**checkpoint(IDS[1], {"a": 1}, {"a": 1}), "v": v, "pending_sends": [], "extra": (1, 2)}
    del point["updated_channels"]
    saver.put(cfg(), point, {"source": "loop", "step": 1}, {"a": 1})
    found = saver.get(cfg())
    assert found == {**point, "extra": [1, 2]}


@on_real_servers
def test_five_thousand_channels_come_back(saver: Facade) -> None:
    """More names in one call than Lua's `unpack` can take at once."""
    state = {f"channel-{n}": n for n in range(5000)}
    put(saver, 1, vers=dict.fromkeys(state, 1), **state)
    (listed,) = saver.list(cfg())
    assert values(saver.get_tuple(cfg())) == state
    assert values(listed) == state
    put(saver, 2, parent=1, vers=dict.fromkeys(state, 2), new={}, **state)
    assert values(saver.get_tuple(cfg())) == state


def test_an_encrypting_serialiser_hides_values_writes_and_metadata(make_saver: MakeSaver, raw: redis.Redis) -> None:
    s = make_saver(serde=EncryptedSerializer.from_pycryptodome_aes(key=b"0123456789abcdef"))
    secret = "the-secret-text"
    put(s, 1, a=secret, meta={"note": secret})
    s.put_writes(cfg("t", "", IDS[1]), [("x", secret)], "k")
    found = s.get_tuple(cfg())
    assert found is not None
    assert values(found) == {"a": secret}
    assert writes(found) == [("k", "x", secret)]
    assert found.metadata["note"] == secret  # type: ignore[typeddict-item]
    stored = [value for part in ("checkpoints", "blobs", "writes") for value in raw.hvals(f"ckpt:{{t}}:{part}")]
    assert stored
    assert not any(secret.encode() in value for value in stored)


@on_fake
def test_a_class_that_was_renamed_reads_as_the_serialiser_says_and_is_logged_once(
    saver: Facade, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    module = types.ModuleType("module_that_was_renamed")

    class Gone(enum.Enum):
        ONE = 1

    Gone.__module__, Gone.__qualname__ = module.__name__, f"Gone{id(module)}"
    Gone.__name__ = Gone.__qualname__
    put(saver, 1, t="thread-7", channel_9=Gone.ONE)
    expected = SERDE.loads_typed(SERDE.dumps_typed(Gone.ONE))
    # the serialiser says it once a process and class; here the line above did
    caplog.clear()
    monkeypatch.setattr("langgraph.checkpoint.serde.jsonplus._warned_unreconstructable_types", set())
    monkeypatch.setattr("langgraph.checkpoint.serde.jsonplus._warned_unregistered_types", set())
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert values(saver.get_tuple(cfg("thread-7"))) == {"channel_9": expected}
    messages = [record.getMessage() for record in caplog.records]
    assert messages
    assert len(messages) == len(set(messages))
    assert all("thread-7" in message and "channel_9" in message for message in messages)
