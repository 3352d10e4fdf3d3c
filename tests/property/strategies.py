"""Random calls of a checkpointer, and the equality that two savers' answers are held to.

Calls are drawn as plain records; what a `Put` says of a channel is resolved against what was stored before, so that
every call is one that LangGraph could make. Left out, because InMemorySaver differs by design:

- NUL in the text of metadata: it drops them, for the sake of Postgres; ours keeps them.
- a value that is not in `new_versions` and was never stored: it loses the value, ours stores it all the same. A value
  that is not new is therefore drawn only if its version has one in the store.
- versions in `new_versions` that the checkpoint itself does not name, and a version that is named before any value is
  stored for it: it would show up in the older checkpoint afterwards. LangGraph's savers never get either.
- versions of several kinds in one thread, where "1", 1 and 1.0 might or might not be one version.
- `True` against 1, and 1 against 1.0, in a filter: it takes them for equal.
- checkpoint ids with `%`, `:`, braces or control characters: quoting moves them in the order of ids. UUIDs have none.
- parents that are no older than their child: it walks a cycle for ever. A `Put` says which older one is meant.
- `__pregel_tasks` among the writes: it does not know the pending sends of the formats before 4.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from dataclasses import dataclass
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any, Literal, TypeAlias
from uuid import UUID

from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.types import Interrupt, Send

THREADS = ("t", "user*", "a:b", "{x}", "50% ünï")
NAMESPACES = ("", "sub", "sub:1", "a:1|b:2", "x y")
IDS = (*(f"1f0a4b1c-9c1e-6d1{i}-8001-2c1f3b7a9d55" for i in range(6)), "10", "9", "Z", "é", "~")
CHANNELS = ("messages", "a", "b:c", "branch:to:x", "__start__", "ключ", "{y}")
TASKS = ("task-1", "task-2", "a0c1", "x:y", "00000000-0000-0000-0000-000000000000")
PATHS = ("", "~__pregel_pull, a", "~__pregel_push, 0000000010", "~__pregel_push, 0000000009", "z")
SPECIAL = ("__error__", "__interrupt__", "__resume__", "__scheduled__")
METADATA_KEYS = ("source", "user", "run_id", "nested", "parents", "näme")
VersionKind: TypeAlias = Literal["int", "float", "str"]
KINDS: tuple[VersionKind, ...] = ("int", "float", "str")
Parent: TypeAlias = Literal["none", "nearest", "second", "missing"]
State: TypeAlias = Literal["new", "same", "named", "emptied", "unknown", "unversioned"]

text = st.text(max_size=12)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(),
    text,
    st.binary(max_size=20),
    st.sampled_from(
        [
            Decimal("1.10"),
            UUID(int=5),
            datetime(2026, 1, 1, tzinfo=timezone.utc),
            frozenset({1, 2}),
            deque([1, "x"]),
            HumanMessage("hi", id="1"),
            AIMessage("", id="2", tool_calls=[{"name": "f", "args": {"x": [1]}, "id": "c"}]),
            Send("node", {"x": (1, 2)}),
            Interrupt({"q": "?"}, id="i"),
            {"lc": 1, "type": "constructor", "id": ["x"]},
            {"__interrupt__": [1]},
        ]
    ),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.dictionaries(st.one_of(text, st.integers(0, 9)), inner, max_size=3),
        st.sets(st.one_of(st.integers(0, 99), text), max_size=3),
    ),
    max_leaves=6,
)

# Metadata come from few values, so that filters match; see the module's docstring for what is missing.
metadata_values = st.sampled_from(["u1", "u2", "", 2, 3, 0.5, None, {"x": [2, "y"]}, {"x": [2, "z"]}, ["u1"], "ünï"])
metadata = st.dictionaries(st.sampled_from(METADATA_KEYS), metadata_values, max_size=4)
# What a config adds: plain values are merged, others and keys with a leading __ are not.
added = st.dictionaries(
    st.sampled_from((*METADATA_KEYS, "__private", "langgraph_step", "step")), metadata_values, max_size=3
)
ids = st.sampled_from(IDS)
threads = st.sampled_from(THREADS)
namespaces = st.sampled_from(NAMESPACES)


@dataclass(frozen=True)
class Put:
    thread_id: str
    ns: str
    checkpoint_id: str
    parent: Parent
    channels: dict[str, tuple[State, int, Any]]
    metadata: dict[str, Any]
    config_metadata: dict[str, Any]
    configurable: dict[str, Any]
    v: int
    seen: dict[str, int]
    updated: list[str] | None


@dataclass(frozen=True)
class PutWrites:
    thread_id: str
    ns: str
    checkpoint_id: str
    writes: list[tuple[str, Any]]
    task_id: str
    task_path: str


@dataclass(frozen=True)
class GetTuple:
    thread_id: str
    ns: str | None
    checkpoint_id: str | None


@dataclass(frozen=True)
class List:
    thread_id: str | None
    ns: str | None
    checkpoint_id: str | None
    before: str | None
    limit: int | None
    filter: dict[str, Any] | None
    like: tuple[int, list[str]] | None = None
    """Instead: these keys of the metadata of the n-th checkpoint, so that the filter matches something."""


@dataclass(frozen=True)
class Delete:
    thread_id: str


@dataclass(frozen=True)
class History:
    thread_id: str
    ns: str
    checkpoint_id: str | None
    channels: list[str]


Action: TypeAlias = "Put | PutWrites | GetTuple | List | Delete | History"

# new: a value of a new version. same: a value that is not new. named: a version that is not new, without a value, as
# LangGraph gives it for a delta channel after a snapshot. emptied: a new version without a value. unknown: a version
# that nothing was ever stored for. unversioned: a value without any version.
states: st.SearchStrategy[State] = st.sampled_from(
    ("new", "new", "new", "same", "same", "named", "emptied", "emptied", "unknown", "unversioned")
)
# Few versions, so that they repeat: hand-made ones do, and then the newer value replaces the older.
steps = st.sampled_from((1, 1, 2, 3))
puts = st.builds(
    Put,
    thread_id=threads,
    ns=namespaces,
    checkpoint_id=ids,
    parent=st.sampled_from(("nearest", "nearest", "nearest", "second", "missing", "none")),
    channels=st.dictionaries(st.sampled_from(CHANNELS), st.tuples(states, steps, values), max_size=4),
    metadata=metadata,
    config_metadata=added,
    configurable=added,
    v=st.sampled_from((4, 4, 4, 3, 1)),
    seen=st.dictionaries(st.sampled_from(("__input__", "node", "b:c")), st.integers(1, 4), max_size=2),
    updated=st.none() | st.lists(st.sampled_from(CHANNELS), max_size=2),
)
writes = st.builds(
    PutWrites,
    thread_id=threads,
    ns=namespaces,
    checkpoint_id=ids,
    # Sometimes more than ten: index 10 comes after 9.
    writes=st.one_of(
        st.lists(st.tuples(st.sampled_from(CHANNELS + SPECIAL), values), max_size=4),
        st.lists(st.tuples(st.sampled_from(CHANNELS), st.integers(0, 99)), min_size=11, max_size=13),
    ),
    task_id=st.sampled_from(TASKS),
    task_path=st.sampled_from(PATHS),
)
gets = st.builds(GetTuple, threads, st.none() | namespaces, st.none() | st.just("") | ids)
lists = st.builds(
    List,
    thread_id=st.none() | threads,
    ns=st.none() | namespaces,
    checkpoint_id=st.none() | st.none() | ids,
    before=st.none() | ids | st.sampled_from(("0", "1f0a4b1c-9c1e-6d13", "ZZ", "Ω")),
    limit=st.sampled_from((None, None, 0, 1, 2, 5, 100)),
    filter=st.none() | metadata,
    like=st.none() | st.tuples(st.integers(0, 5), st.lists(st.sampled_from(METADATA_KEYS), min_size=1, max_size=2)),
)
deletes = st.builds(Delete, threads)
histories = st.builds(
    History, threads, namespaces, st.none() | ids, st.lists(st.sampled_from(CHANNELS), max_size=4, unique=True)
)


@dataclass(frozen=True)
class Corner:
    """The small part of everything that most calls of one script are about, or they would never meet."""

    thread_id: str
    ns: str
    ids: tuple[str, ...]
    tasks: tuple[str, ...]
    channels: tuple[str, ...]

    def move(self, action: Any) -> Any:
        """The same call, about this corner."""
        fields = {**vars(action), "thread_id": self.thread_id}
        for name, value in fields.items():
            if name == "ns":
                fields[name] = self.ns
            elif name == "checkpoint_id" and value:
                fields[name] = _nearby(value, IDS, self.ids)
            elif name == "task_id":
                fields[name] = _nearby(value, TASKS, self.tasks)
            elif name == "channels" and isinstance(value, dict):
                fields[name] = {self._channel(channel): said for channel, said in value.items()}
            elif name == "channels":
                fields[name] = list(dict.fromkeys(map(self._channel, value)))
            elif name == "writes":
                fields[name] = [(self._channel(channel), written) for channel, written in value]
        return type(action)(**fields)

    def _channel(self, channel: str) -> str:
        return channel if channel in SPECIAL else _nearby(channel, CHANNELS, self.channels)


def _nearby(name: str, every: tuple[str, ...], few: tuple[str, ...]) -> str:
    return few[every.index(name) % len(few)]


def _few(names: tuple[str, ...], most: int) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(st.sampled_from(names), min_size=1, max_size=most, unique=True).map(tuple)


corners = st.builds(
    Corner,
    threads,
    namespaces,
    st.sets(st.sampled_from(IDS), min_size=3, max_size=5).map(sorted).map(tuple),
    _few(TASKS, 2),
    _few(CHANNELS, 3),
)
busy: st.SearchStrategy[Action] = st.one_of(
    puts, puts, puts, writes, writes, writes, gets, lists, lists, histories, histories
)
anywhere: st.SearchStrategy[Action] = st.one_of(busy, deletes)


@st.composite
def scripts(draw: st.DrawFn) -> tuple[VersionKind, list[Action]]:
    """A kind of version and a list of calls: a few checkpoints one after another with their writes, then anything."""
    corner = draw(corners)
    chain: list[Action] = []
    for checkpoint_id in corner.ids[: draw(st.integers(1, 4))]:
        drawn = draw(st.lists(st.one_of(puts, writes).map(corner.move), min_size=1, max_size=3))
        chain += [dataclasses.replace(action, checkpoint_id=checkpoint_id) for action in drawn]
    moved = busy.map(corner.move)
    rest = st.lists(st.one_of(moved, moved, moved, moved, anywhere, anywhere.map(corner.move)), min_size=2, max_size=8)
    return draw(st.sampled_from(KINDS)), chain + draw(rest)


def same(ours: Any, theirs: Any) -> bool:
    """Equal, and of equal types, all the way down; NaN equals NaN and the order of a mapping does not count."""
    if type(ours) is not type(theirs):
        return False
    if isinstance(ours, float):
        return repr(ours) == repr(theirs)
    if isinstance(ours, dict):
        return _same_mappings(ours, theirs)
    if isinstance(ours, (list, tuple, deque)):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    if isinstance(ours, (set, frozenset)):
        return same(sorted(ours, key=repr), sorted(theirs, key=repr))
    return bool(ours == theirs)


def _same_mappings(ours: dict[Any, Any], theirs: dict[Any, Any]) -> bool:
    if len(ours) != len(theirs):
        return False
    by_name = {(type(key), key): value for key, value in theirs.items()}
    return all((type(key), key) in by_name and same(value, by_name[type(key), key]) for key, value in ours.items())
