"""What was stored once can be read for ever: dumps of every stored format, read back by the newest code.

A dump is made by `python -m tests.integration.test_golden NAME`, once for each format, and never again.
"""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from typing import Any

import fakeredis
import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.types import Interrupt, Send

from redis_ckpt import RedisSaver
from redis_ckpt._delta import Shape, decode
from redis_ckpt._keys import US
from tests.savers import IDS, cfg, put

GOLDEN = Path(__file__).parents[1] / "golden"
DUMPS = sorted(GOLDEN.glob("*.json"))
VERSIONS: dict[str, Any] = {"messages": 3 << 29, "text": "00000000000000000000000000000002.0.5", "half": 1.5, "gone": 2}
COUNTERS = {"counters_since_delta_snapshot": {"log": [1, 1]}}


def fill(saver: RedisSaver) -> None:
    """One thread with every kind of record."""
    messages = [HumanMessage("hello", id="1"), AIMessage("", id="2", tool_calls=[{"name": "f", "args": {}, "id": "c"}])]
    put(saver, 1, a=1, vers={"a": 1, "log": 1}, meta={"run_id": "r:1", "parents": {"": "x"}})
    put(saver, 1, a=2, vers={"a": 2, "log": 1}, meta={"run_id": "r:1"})  # replaces: leaves an orphan
    values: dict[str, Any] = {"messages": messages, "text": "x\0é", "half": b"\x00\xff"}
    put(saver, 2, parent=1, vers={**VERSIONS, "log": 2}, new={**VERSIONS}, meta=COUNTERS, **values)
    put(saver, 3, ns="sub:1|deep:2", log=_DeltaSnapshot([1, 2]), vers={"log": 7}, meta={"parents": {"": IDS[2]}})
    config = cfg("t", "", IDS[2])
    saver.put_writes(config, [("messages", messages[1]), ("__pregel_tasks", Send("n", {"k": 1}))], "task:a", "~pull, b")
    saver.put_writes(config, [("__interrupt__", [Interrupt("ok?", id="i")])], "task b", "~pull, a")
    old: Any = {
        "v": 1,
        "id": IDS[4],
        "ts": "2024",
        "channel_values": {"a": 4},
        "channel_versions": {"a": 4},
        "versions_seen": {},
        "pending_sends": [],
    }
    saver.put(cfg("t", "old", None), old, {"source": "input", "step": -1}, {"a": 4})


def values_at(n: int) -> dict[str, Any]:
    """What grows, slides and changes: the values of the n-th checkpoint of a thread of deltas."""
    items = [f"item {k} ".ljust(60, ".") for k in range(n + 12)]
    return {
        "log": items,
        "window": items[n:],
        "edited": {f"{k:03}": item if k != n % 9 else f"edit {n}" for k, item in enumerate(items[:12])},
        "inner": {"title": "x" * 90, "steps": {"all": items}, "tail": "y" * 90},
        "chat": [HumanMessage(item, id=str(k)) for k, item in enumerate(items)],
        "bytes": b"".join(b"%04d\x1f\x1e\x1d\x00" % k for k in range(8 * n + 60)),
        "cut": items[: 30 if n % 3 else 18],
        "other": "text " * 90 if n % 7 else ["a list"],
    }


def fill_with_deltas(saver: RedisSaver) -> None:
    """A thread of 36 checkpoints, with a fork and a namespace: the 32nd append is another kind of step."""
    for n in range(37):
        values = values_at(n)
        parent = {0: None, 36: f"{20:04}"}.get(n, f"{n - 1:04}")
        put(saver, f"{n:04}", parent=parent, vers=dict.fromkeys(values, (n + 1) << 29 | n), **values)
        if n % 6 == 0:
            put(saver, f"{n:04}", ns="sub", log=values["log"], vers={"log": (n + 1) << 29 | n})


def plain(found: CheckpointTuple) -> Any:
    """A tuple as text that tells types apart."""
    return repr(
        (found.config, sorted(found.checkpoint.items()), found.metadata, found.parent_config, found.pending_writes)
    )


def dump(client: Any) -> dict[str, Any]:
    def text(raw: bytes) -> str:
        return base64.b64encode(raw).decode()

    keys: dict[str, Any] = {}
    for key in sorted(client.scan_iter(match="ckpt:{*")):
        if client.type(key) == b"hash":
            keys[text(key)] = {text(f): text(v) for f, v in sorted(client.hgetall(key).items()) if f != b"epoch"}
        else:
            keys[text(key)] = [text(m) for m in client.zrange(key, 0, -1)]
    return keys


def load(client: Any, keys: dict[str, Any]) -> None:
    for key, entries in keys.items():
        name = base64.b64decode(key)
        if isinstance(entries, dict):
            client.hset(name, mapping={base64.b64decode(f): base64.b64decode(v) for f, v in entries.items()})
        else:
            client.zadd(name, {base64.b64decode(m): 0 for m in entries})


def test_there_is_a_dump_of_every_format() -> None:
    assert [d.stem for d in DUMPS] == [*FILLS]


def loaded(name: str) -> Any:
    """A client of a server that holds a dump."""
    client = fakeredis.FakeRedis(server=fakeredis.FakeServer())
    load(client, json.loads((GOLDEN / f"{name}.json").read_text("utf-8")))
    return client


def test_a_dump_reads_as_it_was_put() -> None:
    fresh = fakeredis.FakeRedis(server=fakeredis.FakeServer())
    with RedisSaver(redis_client=loaded("format-1")) as saver, RedisSaver(redis_client=fresh) as now:
        fill(now)
        listed = [plain(t) for t in saver.list({"configurable": {"thread_id": "t"}})]
        assert len(listed) == 4
        assert listed == [plain(t) for t in now.list({"configurable": {"thread_id": "t"}})]
        put(saver, 5, parent=2, a=5, vers={"a": 5, "log": 2}, meta=COUNTERS)
        history = saver.get_delta_channel_history(config=cfg("t"), channels=["log"])
        saver.prune(["t"])
        assert [t.checkpoint["id"] for t in saver.list(cfg("t"))] == [IDS[5]]
        assert saver.get_delta_channel_history(config=cfg("t"), channels=["log"]) == history
        found = saver.stats("t")
        assert found is not None
        assert found.namespaces[""].ancestors.count == 2  # the chain of its delta channel


@pytest.mark.parametrize(("name", "compressed"), [("format-2", 0), ("format-2-compressed", 2)])
def test_a_dump_of_deltas_reads_as_it_was_put(name: str, compressed: int) -> None:
    client, fresh = loaded(name), fakeredis.FakeRedis(server=fakeredis.FakeServer())
    stored = [record for field, record in client.hgetall("ckpt:{t}:blobs").items() if field[:1] == b"\x1d"]
    assert sum(record.split(US)[4].count(b",") == len(Shape._fields) for record in stored) == compressed
    shapes = [delta.shape for delta in map(decode, stored)]
    assert len(shapes) > 200
    assert all(any(shape[place] for shape in shapes) for place in range(len(shapes[0])))
    assert {decode(record).number for record in stored} >= {*range(1, 36)}
    config: Any = {"configurable": {"thread_id": "t"}}
    with RedisSaver(redis_client=client) as saver, RedisSaver(redis_client=fresh) as now:
        fill_with_deltas(now)
        found, expected = [*saver.list(config)], [*now.list(config)]
        assert len(found) == 37 + 7
        assert [plain(t) for t in found] == [plain(t) for t in expected]
        for t in found:
            read, n = t.checkpoint["channel_values"], int(t.checkpoint["id"])
            assert {c: saver.serde.dumps_typed(v) for c, v in read.items()} == {
                c: saver.serde.dumps_typed(v) for c, v in values_at(n).items() if c in read
            }
            assert plain(saver.get_tuple(t.config)) == plain(t)  # type: ignore[arg-type]  # it is there
        # It is gone on from as if it had been put today.
        put(saver, "0037", parent="0036", vers=dict.fromkeys(values_at(37), 38 << 29), **values_at(37))
        saver.prune(["t"])
        with RedisSaver(redis_client=client) as other:
            left = other.get_tuple(cfg("t"))
        assert left is not None
        assert left.checkpoint["channel_values"] == values_at(37)


FILLS = {"format-1": fill, "format-2-compressed": fill_with_deltas, "format-2": fill_with_deltas}

if __name__ == "__main__":
    made = fakeredis.FakeRedis()
    with RedisSaver(redis_client=made) as filled:
        FILLS[sys.argv[1]](filled)
    target = GOLDEN / f"{sys.argv[1]}.json"
    assert not target.exists(), "a dump is made once"
    target.write_text(json.dumps(dump(made), indent=1) + "\n", "utf-8")
