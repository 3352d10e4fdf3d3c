"""What can be known about the story: from the journal of executions, and from Redis itself."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any, cast

import redis
from langchain_core.messages import ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.types import StateSnapshot

from redis_ckpt import _keys as names
from redis_ckpt.demo.agent import Desk, build

Said = dict[str, Any]
"""One line of a worker: `event` and its facts."""


def executions(journal: Path) -> Counter[tuple[str, int]]:
    """How often each task was executed, by (task, process id)."""
    lines = journal.read_text().splitlines() if journal.exists() else []
    done = (json.loads(line) for line in lines)
    return Counter((str(d["task"]), int(d["pid"])) for d in done)


def stored_quotes(found: CheckpointTuple | None) -> list[str]:
    """The quotes among the pending writes of a checkpoint, as tasks of the journal."""
    writes = found.pending_writes or [] if found else []
    messages = [m for _task, channel, value in writes if channel == "messages" for m in value]
    return sorted(m.tool_call_id for m in messages if isinstance(m, ToolMessage) and m.name == "get_quote")


def stored_questions(found: CheckpointTuple | None) -> list[str]:
    """What the interrupts among the pending writes of a checkpoint ask."""
    writes = found.pending_writes or [] if found else []
    return [q.value for _task, channel, value in writes if channel == "__interrupt__" for q in value]


@dataclass(frozen=True)
class Step:
    """One checkpoint: what LangGraph says about it, what it weighs in Redis, what its calls took."""

    ns: str
    id: str
    parent: str | None
    source: str
    step: int
    pid: int  # of the worker that stored it
    then: str  # the tasks that follow from it
    record_bytes: int
    value_bytes: int  # of the channel values that came with it; what did not change is stored once
    writes: int
    writes_bytes: int
    put_ms: float
    task_ms: float  # one `put_writes`, on average; there is one for each task


def history(saver: BaseCheckpointSaver[Any], raw: redis.Redis, thread_id: str, said: list[Said]) -> list[Step]:
    """Every checkpoint of the thread, oldest first, a subgraph's right behind the one that started it."""
    graph = build(Desk(Path(os.devnull), lambda supplier: None), saver)
    weights = _Weights(raw, thread_id)
    steps: list[Step] = []
    for snapshot in _oldest_first(graph.get_state_history(_config(thread_id))):
        steps.append(_step(saver, weights, snapshot, said))
        for task in snapshot.tasks:
            ns = f"{task.name}:{task.id}"
            if names.quote(ns) in weights.namespaces:
                inner = graph.get_state_history(_config(thread_id, ns))
                steps += [_step(saver, weights, s, said) for s in _oldest_first(inner)]
    return steps


def _config(thread_id: str, ns: str = "") -> RunnableConfig:
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": ns}}


def _oldest_first(snapshots: Iterator[StateSnapshot]) -> list[StateSnapshot]:
    return list(snapshots)[::-1]


class _Weights:
    """The stored bytes of a thread: three small hashes, read whole."""

    def __init__(self, raw: redis.Redis, thread_id: str) -> None:
        keys = names.thread_keys(b"ckpt", thread_id)
        self.records, self.blobs, self.writes = (
            {field: len(value) for field, value in cast(dict[bytes, bytes], raw.hgetall(key)).items()}
            for key in (keys.checkpoints, keys.blobs, keys.writes)
        )
        self.namespaces = {field.split(names.US)[0] for field in self.records if names.US in field}


def _step(saver: BaseCheckpointSaver[Any], weights: _Weights, snapshot: StateSnapshot, said: list[Said]) -> Step:
    config = snapshot.config["configurable"]
    ns, cid = str(config["checkpoint_ns"]), str(config["checkpoint_id"])
    parent_config = snapshot.parent_config
    parent = saver.get_tuple(parent_config) if parent_config else None
    found = saver.get_tuple(snapshot.config)
    versions = set(found.checkpoint["channel_versions"].items()) if found else set()
    new = versions - set(parent.checkpoint["channel_versions"].items() if parent else ())
    mine = names.checkpoint_field(ns, cid)
    own = [size for name, size in weights.writes.items() if name.startswith(mine + names.US)]
    calls = [s for s in said if s.get("checkpoint") == cid]
    puts = [s for s in calls if s["event"] == "put"]
    metadata = snapshot.metadata or {}
    return Step(
        ns=ns,
        id=cid,
        parent=parent_config["configurable"]["checkpoint_id"] if parent_config else None,
        source=str(metadata.get("source")),
        step=int(metadata.get("step", -2)),
        pid=puts[-1]["pid"] if puts else 0,
        then=", ".join(_times(n, name) for name, n in Counter(t.name for t in snapshot.tasks).items()),
        record_bytes=weights.records.get(mine, 0),
        value_bytes=sum(weights.blobs.get(names.quote(ns) + names.US + names.blob_ref(*v), 0) for v in new),
        writes=len(own),
        writes_bytes=sum(own),
        put_ms=sum(s["ms"] for s in puts),
        task_ms=mean([s["ms"] for s in calls if s["event"] == "put_writes"] or [0.0]),
    )


def _times(n: int, name: str) -> str:
    return name if n == 1 else f"{n} x {name}"


@dataclass(frozen=True)
class StoredKey:
    """One key in Redis."""

    name: str
    kind: str
    entries: int
    memory_bytes: int


def stored_keys(raw: redis.Redis, thread_id: str) -> list[StoredKey]:
    """Every key of the server, the thread's first; the server is the demo's own, so it may be scanned."""
    order = [*names.thread_keys(b"ckpt", thread_id)]
    keys = {*cast("list[bytes]", list(raw.scan_iter(count=1000)))}
    found = []
    for key in [k for k in order if k in keys] + sorted(keys - {*order}):
        kind = cast(bytes, raw.type(key)).decode()
        entries = {"hash": raw.hlen, "zset": raw.zcard, "set": raw.scard}.get(kind, lambda key: 1)(key)
        memory = raw.memory_usage(key, samples=0) or 0
        found.append(StoredKey(key.decode(), kind, entries, memory))
    return found
