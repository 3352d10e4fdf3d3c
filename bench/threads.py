"""Long threads to measure on, made step by step as a graph makes them, with ids and versions of the real kind."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import Checkpoint
from langgraph.checkpoint.base.id import uuid6

from redis_ckpt import RedisSaver

CHANNELS = 10
DELTA_SEED_EVERY = 50


def config_of(thread_id: str, ns: str = "", checkpoint_id: str | None = None) -> RunnableConfig:
    """The config that names a thread, a namespace and, if given, a checkpoint."""
    configurable = {"thread_id": thread_id, "checkpoint_ns": ns}
    return {"configurable": configurable | ({"checkpoint_id": checkpoint_id} if checkpoint_id else {})}


class Chain:
    """One namespace of a thread that grows: ten channels, one changes each step; perhaps a delta channel."""

    def __init__(self, saver: RedisSaver, thread_id: str, ns: str = "", delta: bool = True) -> None:
        self._saver, self._thread_id, self._ns = saver, thread_id, ns
        self._values: dict[str, Any] = {f"channel-{n}": f"the first value of channel {n}" for n in range(CHANNELS)}
        self._versions: dict[str, Any] = dict.fromkeys(self._values, 1)
        self._delta = delta
        self.steps = 0
        self.last_id = ""

    def step(self, writes: int = 2) -> str:
        """Put one more checkpoint, and the writes that lead to the next; answers its id."""
        n = self.steps
        self.steps += 1
        changed = f"channel-{n % CHANNELS}"
        version = self._saver.get_next_version(max(self._versions.values()), None)
        self._values[changed] = f"value {n}"
        self._versions[changed] = version
        new = {changed: version} if n else dict(self._versions)
        metadata: Any = {"source": "loop", "step": n, "parents": {}}
        if self._delta:
            self._versions["log"] = version
            self._values.pop("log", None)
            since = n % DELTA_SEED_EVERY
            if since == 0:
                self._values["log"] = [f"entry {k}" for k in range(20)]
                new["log"] = version
            else:
                metadata["counters_since_delta_snapshot"] = {"log": [since, since]}
        checkpoint_id = str(uuid6(clock_seq=n & 0x3FFF))
        checkpoint: Checkpoint = {
            "v": 4,
            "id": checkpoint_id,
            "ts": datetime.now(timezone.utc).isoformat(),
            "channel_values": dict(self._values),
            "channel_versions": dict(self._versions),
            "versions_seen": {"node": dict(self._versions)},
            "updated_channels": [changed],
        }
        stored = self._saver.put(config_of(self._thread_id, self._ns, self.last_id), checkpoint, metadata, new)
        if writes:
            pairs = [("log", [f"entry {n}"]), *((f"channel-{k}", n) for k in range(writes - 1))]
            self._saver.put_writes(stored, pairs, f"task-{n}")
        self.last_id = checkpoint_id
        return checkpoint_id


def long_thread(saver: RedisSaver, thread_id: str, checkpoints: int, namespaces: tuple[str, ...]) -> list[str]:
    """A thread of so many checkpoints, spread over its namespaces; answers the ids, oldest first."""
    chains = [Chain(saver, thread_id, ns) for ns in namespaces]
    return [chain.step() for chain in _in_turn(chains, checkpoints)]


def _in_turn(chains: list[Chain], count: int) -> Iterator[Chain]:
    for n in range(count):
        yield chains[n % len(chains)]
