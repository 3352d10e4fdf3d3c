"""One face for both colours: a test is written once, in plain calls, and runs on `RedisSaver` and `AsyncRedisSaver`.

Also the hand-made checkpoints that the integration tests put: ids that increase, versions in the form that other
savers use, one value per keyword.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeAlias, TypeVar, overload

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
)

from redis_ckpt import TTL, AsyncRedisSaver, RedisSaver, SweepReport, ThreadInfo, ThreadStats, TotalStats

T = TypeVar("T")

in_one_colour = pytest.mark.parametrize("colour", ["sync"], indirect=True)
"""Marks a test of what the scripts or the plans do, which no colour can change."""

on_valkey = pytest.mark.parametrize("server", ["valkey"], indirect=True)
"""Marks a test of many steps that no server can change: fakeredis runs scripts ten times slower."""

SECONDS = 60.0
IDS = [f"1f0a4b1c-9c1e-6d1{i}-8001-2c1f3b7a9d55" for i in range(10)]


def wait_until(condition: Callable[[], bool]) -> None:
    """Ask until it holds; a failure if that takes too long."""
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end, "what was waited for did not come"
        time.sleep(0.01)


class LoopThread:
    """An event loop on a thread of its own; what is awaited on it runs there."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="loop", daemon=True)
        self._thread.start()

    def run(self, awaitable: Awaitable[T], timeout: float = SECONDS) -> T:
        async def shell() -> T:
            return await awaitable

        return asyncio.run_coroutine_threadsafe(shell(), self.loop).result(timeout)

    def leftovers(self) -> list[str]:
        """The tasks that still run, beside the one that looks."""

        async def look() -> list[str]:
            own = asyncio.current_task()
            return [repr(task) for task in asyncio.all_tasks() if task is not own]

        return self.run(look())

    def stop(self) -> None:
        self.run(self.loop.shutdown_asyncgens())
        self.run(self.loop.shutdown_default_executor())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(SECONDS)
        self.loop.close()


class Facade:
    """A saver of either colour behind plain calls. `raw_saver` is the saver itself."""

    def __init__(self, saver: RedisSaver | AsyncRedisSaver, loop: LoopThread) -> None:
        self.raw_saver: Any = saver
        self.loop = loop
        self.is_async = isinstance(saver, AsyncRedisSaver)

    def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """The method `name` in the colour of this facade; an iterator is read to its end."""
        result = getattr(self.raw_saver, "a" + name if self.is_async else name)(*args, **kwargs)
        if isinstance(result, Coroutine):
            return self.loop.run(result)
        if isinstance(result, AsyncIterator):
            return self.loop.run(_collect(result))
        return list(result) if isinstance(result, Iterator) else result

    def get(self, config: RunnableConfig) -> Checkpoint | None:
        checkpoint: Checkpoint | None = self.call("get", config)
        return checkpoint

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        found: CheckpointTuple | None = self.call("get_tuple", config)
        return found

    def threads(self) -> list[ThreadInfo]:
        found: list[ThreadInfo] = self.call("threads")
        return found

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> list[CheckpointTuple]:
        found: list[CheckpointTuple] = self.call("list", config, filter=filter, before=before, limit=limit)
        return found

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        stored: RunnableConfig = self.call("put", config, checkpoint, metadata, new_versions)
        return stored

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        self.call("put_writes", config, writes, task_id, task_path)

    def delete_thread(self, thread_id: str) -> None:
        self.call("delete_thread", thread_id)

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        self.call("delete_for_runs", run_ids)

    def copy_thread(self, source: str, target: str) -> None:
        self.call("copy_thread", source, target)

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        self.call("prune", thread_ids, strategy=strategy)

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        found: Mapping[str, DeltaChannelHistory] = self.call(
            "get_delta_channel_history", config=config, channels=channels
        )
        return found

    def expire(self, thread_id: str, ttl: float | timedelta | TTL | None) -> bool:
        found: bool = self.call("expire", thread_id, ttl)
        return found

    def persist(self, thread_id: str) -> bool:
        found: bool = self.call("persist", thread_id)
        return found

    def sweep(
        self,
        thread_ids: Sequence[str] | None = None,
        *,
        keep_last: int | None = None,
        older_than: float | timedelta | None = None,
        idle_for: float | timedelta | None = None,
        dry_run: bool = False,
        on_progress: Callable[[SweepReport], object] | None = None,
    ) -> SweepReport:
        limits = {"keep_last": keep_last, "older_than": older_than, "idle_for": idle_for}
        report: SweepReport = self.call("sweep", thread_ids, **limits, dry_run=dry_run, on_progress=on_progress)
        return report

    @overload
    def stats(self, thread_id: str) -> ThreadStats | None: ...
    @overload
    def stats(self, thread_id: None = None) -> TotalStats: ...
    def stats(self, thread_id: str | None = None) -> ThreadStats | TotalStats | None:
        found: ThreadStats | TotalStats | None = self.call("stats", *(() if thread_id is None else (thread_id,)))
        return found

    def get_next_version(self, current: Any, channel: None = None) -> Any:
        return self.raw_saver.get_next_version(current, channel)

    def with_allowlist(self, extra: Sequence[tuple[str, ...]]) -> Facade:
        return Facade(self.raw_saver.with_allowlist(extra), self.loop)

    def setup(self) -> None:
        self.call("setup")

    def close(self) -> None:
        if self.is_async:
            self.loop.run(self.raw_saver.aclose())
        else:
            self.raw_saver.close()


async def _collect(items: AsyncIterator[T]) -> list[T]:
    return [item async for item in items]


MakeSaver: TypeAlias = Callable[..., Facade]

Saver: TypeAlias = "Facade | BaseCheckpointSaver[Any]"
"""What the functions below put into: a facade, or a saver that is asked directly."""


def cfg(thread_id: Any = "t", ns: str = "", checkpoint_id: str | None = None) -> RunnableConfig:
    """The config of a thread, a namespace and, if given, one checkpoint."""
    configurable = {"thread_id": thread_id, "checkpoint_ns": ns}
    return {"configurable": configurable | ({"checkpoint_id": checkpoint_id} if checkpoint_id else {})}


def version(i: int) -> str:
    """A version in the form that InMemorySaver and PostgresSaver use."""
    return f"{i:032}.0"


def checkpoint(checkpoint_id: str, vals: Mapping[str, Any], versions: ChannelVersions) -> Checkpoint:
    return {
        "v": 4,
        "id": checkpoint_id,
        "ts": "2026-01-01T00:00:00+00:00",
        "channel_values": dict(vals),
        "channel_versions": dict(versions),
        "versions_seen": {},
        "updated_channels": None,
    }


def arguments(
    i: int | str,
    /,
    t: Any = "t",
    ns: str = "",
    parent: int | str | None = None,
    meta: Mapping[str, Any] | None = None,
    new: Mapping[str, Any] | None = None,
    vers: Mapping[str, Any] | None = None,
    **vals: Any,
) -> tuple[RunnableConfig, Checkpoint, CheckpointMetadata, ChannelVersions]:
    """What `put` takes for checkpoint `i` (an index of `IDS`, or an id) with one channel per keyword."""
    name = IDS[i] if isinstance(i, int) else i
    parent_id = IDS[parent] if isinstance(parent, int) else parent
    step = i if isinstance(i, int) else 0
    versions: ChannelVersions = dict.fromkeys(vals, version(step)) if vers is None else dict(vers)
    metadata: Any = {"source": "loop", "step": step, **(meta or {})}
    return cfg(t, ns, parent_id), checkpoint(name, vals, versions), metadata, versions if new is None else dict(new)


def put(s: Saver, i: int | str, /, **kwargs: Any) -> RunnableConfig:
    """Put checkpoint `i`; answers its config. Keywords as those of `arguments`."""
    return s.put(*arguments(i, **kwargs))


def values(found: CheckpointTuple | None) -> dict[str, Any]:
    """The channel values of a checkpoint that must be there."""
    assert found is not None
    return found.checkpoint["channel_values"]


def writes(found: CheckpointTuple | None) -> list[tuple[str, str, Any]]:
    """The pending writes of a checkpoint that must be there."""
    assert found is not None
    assert found.pending_writes is not None
    return found.pending_writes


def steps(found: Sequence[CheckpointTuple]) -> list[int]:
    return [item.metadata["step"] for item in found]


def ids(found: Sequence[CheckpointTuple]) -> list[str]:
    return [item.checkpoint["id"] for item in found]
