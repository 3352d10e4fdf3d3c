"""The same random calls on InMemorySaver and on ours: the answers are equal, in value and in type, after every call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.memory import InMemorySaver

from tests.profiles import by_profile
from tests.property.strategies import (
    CHANNELS,
    Action,
    Delete,
    GetTuple,
    History,
    List,
    Put,
    PutWrites,
    VersionKind,
    same,
    scripts,
)
from tests.savers import Facade, cfg

SECONDS = 900.0  # the long profile, or the shrinking of a failure
EXAMPLES = by_profile(300, 2000)
CHECKS = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    print_blob=True,
)


class Known:
    """What the thread has stored so far, to resolve what a `Put` says of a channel."""

    def __init__(self, kind: VersionKind) -> None:
        self._kind = kind
        self._latest: dict[tuple[str, str, str], tuple[int, bool]] = {}
        self._bare: set[tuple[str, str, str, int]] = set()  # versions that a checkpoint names without a value

    def version(self, step: int) -> Any:
        if self._kind == "str":
            return f"{step:032}.{step:016}"
        return float(step) + 0.5 if self._kind == "float" else step << 29 | step

    def resolve(self, put: Put) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        """The values, versions and new versions of a checkpoint."""
        values: dict[str, Any] = {}
        versions: dict[str, Any] = {}
        new: dict[str, Any] = {}
        for channel, (state, drawn, value) in put.channels.items():
            at = (put.thread_id, put.ns, channel)
            latest, has_value = self._latest.get(at, (0, False))
            step = drawn
            if state == "unversioned":
                values[channel] = value
            elif state == "unknown":
                versions[channel] = self.version(1000 + step)
            elif state == "new":
                while (*at, step) in self._bare:  # else the value would show in the older checkpoint of InMemorySaver
                    step += 10
                values[channel] = value
                versions[channel] = new[channel] = self.version(step)
                self._latest[at] = step, True
            elif state == "emptied":
                versions[channel] = new[channel] = self.version(step)
                self._latest[at] = step, False
                self._bare.add((*at, step))
            elif has_value:
                versions[channel] = self.version(latest)
                if state == "same":
                    values[channel] = value
        return values, versions, new

    def forget(self, thread_id: str) -> None:
        self._latest = {at: latest for at, latest in self._latest.items() if at[0] != thread_id}
        self._bare = {at for at in self._bare if at[0] != thread_id}


class Pair:
    """Both savers; every call goes to both."""

    def __init__(self, ours: Facade, kind: VersionKind) -> None:
        self.ours = ours
        self.oracle = InMemorySaver()
        self.known = Known(kind)

    def do(self, action: Action) -> None:
        calls: dict[type, Callable[[Any], None]] = {
            Put: self._put,
            PutWrites: self._put_writes,
            GetTuple: self._get_tuple,
            List: self._list,
            Delete: self._delete,
            History: self._history,
        }
        calls[type(action)](action)

    def _put(self, put: Put) -> None:
        values, versions, new = self.known.resolve(put)
        config = _config(put.thread_id, put.ns, self._parent(put))
        config["configurable"] = {**put.configurable, **config["configurable"]}
        config["metadata"] = put.config_metadata
        checkpoint: Any = {
            "v": put.v,
            "id": put.checkpoint_id,
            "ts": "2026-01-01T00:00:00+00:00",
            "channel_values": values,
            "channel_versions": versions,
            "versions_seen": {node: {"a": self.known.version(step)} for node, step in put.seen.items()},
            "updated_channels": put.updated,
        }
        metadata: Any = put.metadata
        answers = [s.put(config, checkpoint, metadata, new) for s in (self.ours, self.oracle)]
        assert same(*answers)
        self._get_tuple(GetTuple(put.thread_id, put.ns, put.checkpoint_id))

    def _parent(self, put: Put) -> str | None:
        """An older checkpoint of the namespace, one that was never stored, or none."""
        stored = self.oracle.storage[put.thread_id][put.ns]
        older = sorted((i for i in stored if i < put.checkpoint_id), reverse=True)
        if put.parent == "missing":
            return "0"
        return next(iter(older[put.parent == "second" :]), None) if put.parent != "none" else None

    def _put_writes(self, put: PutWrites) -> None:
        config = _config(put.thread_id, put.ns, put.checkpoint_id)
        for saver in (self.ours, self.oracle):
            saver.put_writes(config, put.writes, put.task_id, put.task_path)
        self._get_tuple(GetTuple(put.thread_id, put.ns, put.checkpoint_id))

    def _get_tuple(self, get: GetTuple) -> None:
        config = _config(get.thread_id, get.ns, get.checkpoint_id)
        self._same_tuples([self.ours.get_tuple(config)], [self.oracle.get_tuple(config)])

    def _list(self, call: List) -> None:
        config = None if call.thread_id is None else _config(call.thread_id, call.ns, call.checkpoint_id)
        before = None if call.before is None else _config("any", "", call.before)
        filter = self._filter(call, config)
        ours = self.ours.list(config, filter=filter, before=before, limit=call.limit)
        every = list(self.oracle.list(config, filter=filter, before=before))
        # InMemorySaver goes namespace by namespace, ours is newest first over them all.
        ids = sorted((t.checkpoint["id"] for t in every), reverse=True)[: call.limit]
        assert [t.checkpoint["id"] for t in ours] == ids
        if len(ours) < len(every):
            if config is not None and call.ns is not None:
                every = list(self.oracle.list(config, filter=filter, before=before, limit=call.limit))
            else:  # which of the checkpoints that share the last id are in the page is open
                names = {_name(t) for t in ours}
                every = [t for t in every if _name(t) in names]
        by_name: list[list[CheckpointTuple | None]] = [[*sorted(found, key=_name)] for found in (ours, every)]
        self._same_tuples(*by_name)

    def _filter(self, call: List, config: RunnableConfig | None) -> dict[str, Any] | None:
        stored = list(self.oracle.list(config)) if call.like else []
        if call.like is None or not stored:
            return call.filter
        at, keys = call.like
        metadata: Any = stored[at % len(stored)].metadata
        return {key: metadata.get(key) for key in keys}

    def _delete(self, delete: Delete) -> None:
        self.known.forget(delete.thread_id)
        for saver in (self.ours, self.oracle):
            saver.delete_thread(delete.thread_id)
        self._list(List(delete.thread_id, None, None, None, None, None))

    def _history(self, call: History) -> None:
        config = _config(call.thread_id, call.ns, call.checkpoint_id)
        ours, theirs = (
            s.get_delta_channel_history(config=config, channels=call.channels) for s in (self.ours, self.oracle)
        )
        assert same(dict(ours), dict(theirs)), f"{ours} is not {theirs}"

    def _same_tuples(self, ours: Sequence[CheckpointTuple | None], theirs: Sequence[CheckpointTuple | None]) -> None:
        for mine, other in zip(ours, theirs, strict=True):
            told, expected = _told(mine), _told(other)
            assert same(told, expected), f"{told} is not {expected}"

    def compare_all(self) -> None:
        """Everything once more: all threads together, the latest of each namespace, the history of each checkpoint."""
        self._list(List(None, None, None, None, None, None))
        for thread_id, namespaces in self.oracle.storage.items():
            for ns, checkpoints in namespaces.items():
                self._get_tuple(GetTuple(thread_id, ns, None))
                for checkpoint_id in checkpoints:
                    self._history(History(thread_id, ns, checkpoint_id, [*CHANNELS]))


def _config(thread_id: str, ns: str | None, checkpoint_id: str | None) -> RunnableConfig:
    config = cfg(thread_id, ns or "")
    if ns is None:
        del config["configurable"]["checkpoint_ns"]
    if checkpoint_id is not None:
        config["configurable"]["checkpoint_id"] = checkpoint_id
    return config


def _name(found: CheckpointTuple) -> tuple[str, ...]:
    configurable = found.config["configurable"]
    return configurable["checkpoint_id"], configurable["thread_id"], configurable["checkpoint_ns"]


def _told(found: CheckpointTuple | None) -> Any:
    """A tuple as plain data. InMemorySaver echoes the config it was asked with, so that may lack the namespace."""
    if found is None:
        return None
    told = found._asdict()
    told["config"] = {"configurable": {"checkpoint_ns": "", **found.config["configurable"]}}
    return told


def _play(saver: Facade, raw: redis.Redis, script: tuple[VersionKind, list[Action]]) -> None:
    kind, actions = script
    raw.flushall()
    saver.raw_saver._cache.begin_in_child()  # versions come again, which no saver's own do
    pair = Pair(saver, kind)
    for action in actions:
        pair.do(action)
    pair.compare_all()


@pytest.mark.timeout(SECONDS)
@pytest.mark.parametrize("server", ["fake"], indirect=True)
@pytest.mark.parametrize("colour", ["sync"], indirect=True)
@settings(CHECKS, max_examples=EXAMPLES)
@given(script=scripts())
def test_random_calls(saver: Facade, raw: redis.Redis, script: tuple[VersionKind, list[Action]]) -> None:
    _play(saver, raw, script)


@pytest.mark.timeout(SECONDS)
@settings(CHECKS, max_examples=EXAMPLES // 10)
@given(script=scripts())
def test_random_calls_on_every_server_in_both_colours(
    saver: Facade, raw: redis.Redis, script: tuple[VersionKind, list[Action]]
) -> None:
    _play(saver, raw, script)
