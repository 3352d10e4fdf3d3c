"""What was acknowledged: savers that write a line after each call that returned, and who reads those lines.

A worker's line is on disk before its graph goes on, so it outlives a kill right after it. A call that raised,
or that was cut short by a kill, leaves no line: it may have been done or not.
"""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import ChannelVersions, Checkpoint, CheckpointMetadata

from redis_ckpt import AsyncRedisSaver, RedisSaver

Place = tuple[str, str]
"""Namespace and id of a checkpoint."""


def _nothing() -> None:
    pass


class Journal:
    """A file that grows by whole lines, whoever writes to it.

    Args:
        path: The file.
        on_line: Is called after each line.
        is_synced: Whether each line is on disk before the graph goes on.
    """

    def __init__(self, path: Path, on_line: Callable[[], object] = _nothing, *, is_synced: bool = True) -> None:
        self._is_synced = is_synced
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._on_line = on_line

    def note(self, *line: str) -> None:
        os.write(self._file, (json.dumps(line) + "\n").encode())
        if self._is_synced:
            os.fsync(self._file)
        self._on_line()

    def started(self, thread_id: str, task_id: str) -> None:
        self.note("started", thread_id, task_id)

    def put(self, stored: RunnableConfig) -> None:
        at = stored["configurable"]
        self.note("put", at["thread_id"], at["checkpoint_ns"], at["checkpoint_id"])

    def put_writes(self, config: RunnableConfig, task_id: str) -> None:
        at = config["configurable"]
        self.note("writes", at["thread_id"], at.get("checkpoint_ns", ""), at["checkpoint_id"], task_id)

    def close(self) -> None:
        os.close(self._file)


class Acknowledged:
    """All that a journal says so far."""

    def __init__(self, path: Path) -> None:
        self._path, self._read = path, 0
        self.checkpoints: dict[str, set[Place]] = defaultdict(set)
        self.writes: dict[str, set[tuple[Place, str]]] = defaultdict(set)
        self.counts: Counter[str] = Counter()
        self.faults: list[str] = []
        self._finished: set[tuple[str, str]] = set()

    def read(self) -> Acknowledged:
        """What has come since the last time."""
        with self._path.open("rb") as file:
            file.seek(self._read)
            for line in file:
                if not line.endswith(b"\n"):
                    break  # its writer is at it
                self._read += len(line)
                self._take(*json.loads(line))
        return self

    def _take(self, what: str, thread_id: str, *rest: str) -> None:
        self.counts[what] += 1
        if what == "put":
            self.checkpoints[thread_id].add((rest[0], rest[1]))
        elif what == "writes":
            self.writes[thread_id].add(((rest[0], rest[1]), rest[2]))
            self._finished.add((thread_id, rest[2]))
        elif (thread_id, rest[0]) in self._finished:
            self.counts["run again"] += 1
            self.faults.append(f"thread {thread_id!r}: task {rest[0]} had finished, and was run again")


class SyncSaver(RedisSaver):
    """A saver that writes a journal."""

    journal: Journal

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        stored = super().put(config, checkpoint, metadata, new_versions)
        self.journal.put(stored)
        return stored

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        super().put_writes(config, writes, task_id, task_path)
        self.journal.put_writes(config, task_id)


class AsyncSaver(AsyncRedisSaver):
    """The same on asyncio."""

    journal: Journal

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        stored = await super().aput(config, checkpoint, metadata, new_versions)
        self.journal.put(stored)
        return stored

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        await super().aput_writes(config, writes, task_id, task_path)
        self.journal.put_writes(config, task_id)


def journaled(is_async: bool, url: str, journal: Journal, **options: Any) -> SyncSaver | AsyncSaver:
    saver = (AsyncSaver if is_async else SyncSaver)(url, **options)
    saver.journal = journal
    return saver
