"""What a graph's workers put: supersteps, drawn as plain records and resolved against what a thread holds.

So every put is one that a graph could make. It carries on from its parent, also from one that was removed meanwhile,
under a slow worker. A version never comes without a value after it had one, and a parent is older than its child.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any, Literal, NamedTuple, TypeAlias

from hypothesis import strategies as st

from tests.property.model import ROOT, Name, Saved, Thread, is_call, uuid6_at

BEGIN = datetime.now(timezone.utc)
NAMESPACES = (ROOT, ROOT, ROOT, "memory", "agent:1", "agent:1|tool:2")
PLAIN = ("a", "b:c")
DELTA = ("log", "seen")
# Ages of 3, 9, 15 ... hours. Limits are multiples of 6 hours, so it does not matter how long a test takes.
IDS = tuple(uuid6_at(BEGIN - timedelta(hours=3 + 6 * n)) for n in reversed(range(40)))
NO_TIME = "2001-01-01T00:00:00+00:00"  # the `ts` of those: that of the id counts
# Ids that tell no time, in their order between the others, and what `ts` tells of them.
ODD = {
    "0100": (BEGIN - timedelta(days=30)).isoformat(),
    "zzz": (BEGIN - timedelta(hours=1)).isoformat(),
    "~": "never",
}

How: TypeAlias = Literal["new", "replaced", "emptied"]
Place: TypeAlias = tuple[Literal["next", "any", "again", "odd"], int]
Parent: TypeAlias = Literal["latest", "older", "gone", "none"]
Root: TypeAlias = Literal["latest", "other", "unsaid"]


@dataclass(frozen=True)
class Step:
    """A superstep, still to be resolved.

    Attributes:
        place: Which id it has: greater than all, any, one that is stored, or one that tells no time.
        parent: Which of the older ones it goes on from; of a fork that is not the latest.
        plain: What becomes of the ordinary channels that it touches.
        delta: The delta channels that it touches: a write at the parent, and perhaps a snapshot after it.
        root: Which root checkpoint a call says that it belongs to.
        run: Which run it is of.
    """

    place: Place
    parent: Parent
    plain: dict[str, tuple[How, int]]
    delta: dict[str, tuple[Literal["write", "snapshot"], int]]
    root: Root
    run: int | None


places: st.SearchStrategy[Place] = st.tuples(
    st.sampled_from((*["next"] * 8, "any", "again", "again", "odd")), st.integers(0, 39)
)
steps = st.builds(
    Step,
    place=places,
    parent=st.sampled_from((*["latest"] * 6, "older", "gone", "gone", "gone", "none")),
    plain=st.dictionaries(
        st.sampled_from(PLAIN),
        st.tuples(st.sampled_from(("new", "new", "replaced", "emptied")), st.integers(0, 9)),
        max_size=2,
    ),
    delta=st.dictionaries(
        st.sampled_from(DELTA),
        st.tuples(st.sampled_from(("write", "write", "snapshot")), st.integers(0, 9)),
        max_size=2,
    ),
    root=st.sampled_from(("latest", "latest", "other", "unsaid")),
    run=st.sampled_from((None, 0, 0, 0, 1, 2)),
)
namespaces = st.sampled_from(NAMESPACES)
channels = st.sampled_from((*DELTA, *DELTA, *PLAIN, "__error__", "__interrupt__", "__resume__", "__scheduled__"))
writes = st.lists(st.tuples(channels, st.integers(0, 99)), min_size=1, max_size=3)


def _unique(n: int) -> int:
    return n << 29 | n


def _grown(before: list[str], n: int) -> list[str]:
    """A longer list; now and then one without its beginning."""
    return before[len(before) // 2 :] if n == 0 else [*before, *(f"item {k}" for k in range(n))]


class View(NamedTuple):
    """What a worker knows of a checkpoint that it goes on from. It holds the values of delta channels elsewhere."""

    values: dict[str, Any]
    versions: dict[str, int]
    counters: dict[str, list[int]]


class Put(NamedTuple):
    """A superstep, resolved: what is put."""

    name: Name
    saved: Saved
    values: dict[str, Any]
    new_versions: dict[str, int]
    writes: list[tuple[str, Any]]  # at the parent, before it


class Workers:
    """The workers of one example: they remember what they have put, whatever became of it.

    With `grows` their values are lists that grow, under versions that never come twice: savers may store deltas.
    """

    def __init__(self, threads: dict[str, Thread], number: int, grows: bool = False) -> None:
        self._threads = threads
        self._number = number
        self._grows = grows
        self._versions = map(_unique, itertools.count(1)) if grows else itertools.count(1)
        self._views: dict[tuple[str, Name], View] = {}

    def run_id(self, n: int) -> str:
        return f"run-{self._number}-{n}"

    def id(self, thread_id: str, ns: str, place: Place) -> str:
        kind, n = place
        if kind == "odd":
            return [*ODD][n % len(ODD)]
        if kind == "again" and (ids := sorted(i for at, i in self._threads[thread_id].records() if at == ns)):
            return ids[n % len(ids)]
        if kind == "next":
            used = [IDS.index(i) for of, (_, i) in self._views if of == thread_id and i in IDS]
            return IDS[min(max(used) + 1 + n % 2, len(IDS) - 1) if used else n % 24]
        return IDS[n]

    def gone(self, thread_id: str) -> list[Name]:
        """The checkpoints of a thread that were there once."""
        there = self._threads[thread_id].checkpoints
        return sorted(name for of, name in self._views if of == thread_id and name not in there)

    def put(self, thread_id: str, ns: str, step: Step) -> Put:
        """What the superstep puts."""
        name = (ns, self.id(thread_id, ns, step.place))
        parent = self._parent(thread_id, name, step.parent)
        view = View({}, {}, {}) if parent is None else self._view(thread_id, (ns, parent))
        values, versions, new, counters = dict(view.values), dict(view.versions), dict[str, int](), dict(view.counters)
        for channel, (how, value) in step.plain.items():
            if self._grows or not (how == "replaced" and channel in values):
                versions[channel] = next(self._versions)
            new[channel] = versions[channel]
            values[channel] = _grown(values.get(channel, []), value) if self._grows else value
            if how == "emptied":
                del values[channel]
        self._views[thread_id, name] = View(dict(values), versions, counters)
        for channel in DELTA:
            updates, supersteps = counters.get(channel, [0, 0])
            counters[channel] = [updates + (channel in step.delta), supersteps + 1]
        for channel, (kind, _) in step.delta.items():
            versions[channel] = new[channel] = next(self._versions)
            if kind == "snapshot":
                values[channel] = [*map(str, range(versions[channel] >> 29))] or [versions[channel]]
                del counters[channel]
        saved = Saved(parent, ODD.get(name[1], NO_TIME), versions, self._metadata(thread_id, ns, step, counters))
        return Put(name, saved, values, new, [(channel, n) for channel, (_, n) in step.delta.items()])

    def _metadata(self, thread_id: str, ns: str, step: Step, counters: dict[str, list[int]]) -> dict[str, Any]:
        metadata: dict[str, Any] = {"source": "loop", "step": len(self._views)}
        if counters:
            metadata["counters_since_delta_snapshot"] = counters
        if is_call(ns) and (root := self._root(thread_id, ns, step.root)):
            metadata["parents"] = {ROOT: root}
        if step.run is not None:
            metadata["run_id"] = self.run_id(step.run)
        return metadata

    def _parent(self, thread_id: str, name: Name, wanted: Parent) -> str | None:
        ns, checkpoint_id = name
        older = sorted(i for of, (at, i) in self._views if (of, at) == (thread_id, ns) and i < checkpoint_id)
        there = [i for i in older if (ns, i) in self._threads[thread_id].checkpoints]
        if wanted == "none":
            return None
        if wanted == "gone":
            there = [i for i in older if i not in there] or there
        return there[0 if wanted == "older" else -1] if there else None

    def _view(self, thread_id: str, name: Name) -> View:
        thread = self._threads[thread_id]
        if name not in thread.checkpoints:
            return self._views[thread_id, name]
        saved = thread.checkpoints[name]
        values = {channel: value for channel, value in thread.values(name).items() if channel in PLAIN}
        return View(values, saved.versions, saved.metadata.get("counters_since_delta_snapshot", {}))

    def _root(self, thread_id: str, ns: str, wanted: Root) -> str:
        """The root checkpoint of a call: for all checkpoints of the call the same."""
        thread = self._threads[thread_id]
        ids = thread.namespaces()
        if ns in ids:
            return thread.checkpoints[ns, ids[ns][0]].root
        if wanted == "latest" and ROOT in ids:
            return ids[ROOT][0]
        return "" if wanted == "unsaid" else IDS[len(self._views) % len(IDS)]
