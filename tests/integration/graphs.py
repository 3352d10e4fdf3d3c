"""Play one story on LangGraph graphs, once on InMemorySaver and once on ours, and compare all that was seen and stored.

A story is a function that takes a `Play` and drives graphs through it. Everything that the graphs answered is noted;
at the end the saver is asked for every checkpoint of every thread. Ids, versions and times differ between two runs by
their nature: `Telling` replaces each by a number of first appearance, so equal tellings mean equal states.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypeVar

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import StateGraph
from langgraph.pregel import Pregel
from langgraph.types import Send, StateSnapshot, StateUpdate

from tests.savers import Facade

T = TypeVar("T")
App = Pregel[Any, Any, Any, Any]
Builder = StateGraph[Any, Any, Any, Any]
Saver = BaseCheckpointSaver[Any]
Durability = Literal["sync", "async", "exit"]
Story = Callable[["Play"], None]

DURABILITIES: tuple[Durability, ...] = ("sync", "async", "exit")
# A dashed UUID (checkpoints, tasks, runs) or the 32 hex digits of an interrupt.
IDENTITY = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}|\b[0-9a-f]{32}\b")
TIMES = {"ts", "created_at", "timestamp"}
VERSIONS = {"channel_versions", "versions_seen"}


def thread(thread_id: str = "t", **configurable: Any) -> RunnableConfig:
    return {"configurable": {"thread_id": thread_id, **configurable}}


class Telling:
    """Turns what a graph or a saver answers into plain data that two runs can share."""

    def __init__(self) -> None:
        self._ids: dict[str, str] = {}
        self._versions: dict[Any, str] = {}

    def tell(self, x: Any) -> Any:
        if isinstance(x, str):
            return IDENTITY.sub(lambda found: self._label(found.group()), x)
        if isinstance(x, Mapping):
            return self._mapping(x)
        if isinstance(x, tuple) and hasattr(x, "_asdict"):
            return [type(x).__name__, self._mapping(x._asdict())]
        if isinstance(x, (list, tuple)):
            return [type(x).__name__, *map(self.tell, x)]
        if isinstance(x, (set, frozenset)):
            return [type(x).__name__, *sorted(map(repr, map(self.tell, x)))]
        if isinstance(x, BaseMessage):
            return [type(x).__name__, self._mapping(x.model_dump())]
        if isinstance(x, BaseException):
            return [type(x).__name__, self.tell(str(x))]
        if isinstance(x, Send):
            return ["Send", self.tell(x.node), self.tell(x.arg)]
        if dataclasses.is_dataclass(x) and not isinstance(x, type):
            return [type(x).__name__, self._mapping({f.name: getattr(x, f.name) for f in dataclasses.fields(x)})]
        return [type(x).__name__, x]

    def _mapping(self, x: Mapping[Any, Any]) -> dict[Any, Any]:
        keys = sorted(x, key=lambda k: IDENTITY.sub("", k) if isinstance(k, str) else repr(k))
        told: dict[Any, Any] = {}
        for key in keys:
            name = self.tell(key) if isinstance(key, str) else repr(key)
            if key in TIMES:
                told[name] = x[key] is not None
            elif key in VERSIONS:
                told[name] = self._versioned(x[key])
            elif key == "__interrupt__":  # tasks that ran side by side asked in any order
                told[name] = self.tell(sorted(x[key], key=lambda i: repr(getattr(i, "value", i))))
            else:
                told[name] = self.tell(x[key])
        return told

    def _versioned(self, x: Any) -> Any:
        if isinstance(x, Mapping):
            return {key: self._versioned(x[key]) for key in sorted(x)}
        return self._versions.setdefault(x, f"v{len(self._versions)}")

    def _label(self, identity: str) -> str:
        return self._ids.setdefault(identity, f"#{len(self._ids)}")


class Play:
    """Graphs on one saver, driven in the colour of a facade and on its loop; notes every answer."""

    def __init__(self, facade: Facade, saver: Saver | None = None) -> None:
        self.saver: Saver = facade.raw_saver if saver is None else saver
        self.is_async = facade.is_async
        self.wait = facade.loop.run
        self.notes: list[Any] = []

    def app(self, builder: Builder, **kwargs: Any) -> App:
        return builder.compile(checkpointer=self.saver, **kwargs)

    def invoke(self, app: App, value: Any, config: RunnableConfig, **kwargs: Any) -> Any:
        if not self.is_async:
            return self._note("invoke", app.invoke(value, config, **kwargs))
        return self._note("invoke", self.wait(app.ainvoke(value, config, **kwargs)))

    def fails(self, app: App, value: Any, config: RunnableConfig, **kwargs: Any) -> Exception:
        """Invoke a graph that must raise; answer what it raised."""
        try:
            self.invoke(app, value, config, **kwargs)
        except Exception as error:
            self._note("fails", error)
            return error
        raise AssertionError("the graph did not fail")

    def stream(
        self, app: App, value: Any, config: RunnableConfig, stop_after: int | None = None, **kwargs: Any
    ) -> list[Any]:
        """What the graph streams, or its first items: then the stream is closed as by a reader that went away."""
        if not self.is_async:
            told = _first(app.stream(value, config, **kwargs), stop_after)
        else:
            told = self.wait(_afirst(app.astream(value, config, **kwargs), stop_after))
        return list(self._note("stream", told))

    def state(self, app: App, config: RunnableConfig, *, subgraphs: bool = False) -> StateSnapshot:
        if not self.is_async:
            snapshot = app.get_state(config, subgraphs=subgraphs)
        else:
            snapshot = self.wait(app.aget_state(config, subgraphs=subgraphs))
        assert isinstance(self._note("state", snapshot), StateSnapshot)
        return snapshot

    def history(self, app: App, config: RunnableConfig, **kwargs: Any) -> list[StateSnapshot]:
        """The state history, newest first."""
        if not self.is_async:
            found = list(app.get_state_history(config, **kwargs))
        else:
            found = self.wait(_all(app.aget_state_history(config, **kwargs)))
        self._note("history", found[::-1])
        return found

    def update(self, app: App, config: RunnableConfig, values: Any, as_node: str | None = None) -> RunnableConfig:
        if not self.is_async:
            made = app.update_state(config, values, as_node=as_node)
        else:
            made = self.wait(app.aupdate_state(config, values, as_node=as_node))
        self._note("update", made)
        return made

    def bulk(self, app: App, config: RunnableConfig, supersteps: list[list[StateUpdate]]) -> RunnableConfig:
        if not self.is_async:
            made = app.bulk_update_state(config, supersteps)
        else:
            made = self.wait(app.abulk_update_state(config, supersteps))
        self._note("bulk", made)
        return made

    def stored(self, thread_id: str = "t") -> list[CheckpointTuple]:
        """Every checkpoint of a thread, namespace by namespace, oldest first."""
        config = thread(thread_id)
        found = self.wait(_all(self.saver.alist(config))) if self.is_async else list(self.saver.list(config))
        # Two parallel subgraphs take turns as they like, so each namespace is told by itself.
        return sorted(
            found, key=lambda t: (IDENTITY.sub("", t.config["configurable"]["checkpoint_ns"]), t.checkpoint["id"])
        )

    def _note(self, what: str, answer: Any) -> Any:
        self.notes.append((what, answer))
        return answer


def inside(snapshot: StateSnapshot) -> StateSnapshot:
    """The state of the subgraph that the only task of this state is in."""
    (task,) = snapshot.tasks
    assert isinstance(task.state, StateSnapshot)
    return task.state


def twice(story: Story, saver: Facade, *threads: str) -> Play:
    """Play a story on InMemorySaver and on ours; all that was seen and all that was stored must be alike."""
    oracle, ours = Play(saver, InMemorySaver()), Play(saver)
    for play in (oracle, ours):
        story(play)
    for thread_id in threads or ("t",):
        found = difference(_told(ours, thread_id), _told(oracle, thread_id))
        assert found is None, f"thread {thread_id}: {found}"
    return ours


def _told(play: Play, thread_id: str) -> list[Any]:
    telling = Telling()
    return [telling.tell(play.notes), telling.tell(play.stored(thread_id))]


def difference(ours: Any, theirs: Any, path: str = "") -> str | None:
    """Where two tellings part, or None: a whole state is too much to print."""
    if isinstance(ours, dict) and isinstance(theirs, dict) and ours.keys() == theirs.keys():
        parts = [(f".{key}", ours[key], theirs[key]) for key in ours]
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        parts = [(f"[{i}]", *pair) for i, pair in enumerate(zip(ours, theirs, strict=True))]
    else:
        return None if type(ours) is type(theirs) and ours == theirs else f"{path}: {ours!r} is not {theirs!r}"
    return next((found for step, a, b in parts if (found := difference(a, b, path + step))), None)


def _first(items: Iterable[T], count: int | None) -> list[T]:
    found: list[T] = []
    for item in items:
        found.append(item)
        if len(found) == count:
            break
    if close := getattr(items, "close", None):
        close()
    return found


async def _afirst(items: Any, count: int | None) -> list[Any]:
    found: list[Any] = []
    async for item in items:
        found.append(item)
        if len(found) == count:
            break
    await items.aclose()
    return found


async def _all(items: Any) -> list[Any]:
    return [item async for item in items]
