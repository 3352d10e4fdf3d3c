"""What a checkpointer with expiry and retention has to do, in plain Python.

A second statement of the rules that `redis_ckpt/policies.py` and the scripts carry out, written without looking at
how they do it: a thread is dictionaries, a namespace is text, and what stays is said in sentences. The state machine
holds the two against each other.

What a model need not know is left out: values are looked up by (namespace, channel, version), which no put here gives
without a value after it had one, and a parent is always older than its child.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

Name: TypeAlias = tuple[str, str]
"""A checkpoint of a thread: its namespace and its id."""

Blob: TypeAlias = tuple[str, str, int]
"""A channel value of a thread: namespace, channel, version."""

ROOT = ""
PINNED = 0.0
SPECIAL = {"__error__": -1, "__scheduled__": -2, "__interrupt__": -3, "__resume__": -4}
GREGORIAN = datetime(1582, 10, 15, tzinfo=timezone.utc)


def uuid6_at(at: datetime, node: int = 0x2C1F3B7A9D55) -> str:
    """The UUIDv6 that a clock would have made then: 60 bits of 100 ns, most significant first, around the version."""
    ticks = (at - GREGORIAN) // timedelta(microseconds=1) * 10
    return str(UUID(int=ticks >> 12 << 80 | 6 << 76 | (ticks & 0xFFF) << 64 | 0b10 << 62 | node))


def made_at(checkpoint_id: str, ts: str) -> datetime | None:
    """When a checkpoint was made: by the clock in its UUIDv6, else by its `ts`; None if neither tells."""
    digits = checkpoint_id.replace("-", "")
    if len(digits) == 32 and digits[12] == "6":
        return GREGORIAN + timedelta(microseconds=int(digits[:12] + digits[13:16], 16) // 10)
    try:
        return datetime.fromisoformat(ts)
    except ValueError:
        return None


def is_call(ns: str) -> bool:
    """Whether a namespace is that of one call of a subgraph: `node:task`. That of a subgraph with memory is `node`."""
    return ":" in ns


class Pending(NamedTuple):
    """A pending write; the fields order the writes of a checkpoint."""

    path: str
    task: str
    idx: int
    channel: str
    value: Any


@dataclass(frozen=True)
class Saved:
    """A checkpoint as it was put, its values aside."""

    parent: str | None
    ts: str
    versions: dict[str, int]
    metadata: dict[str, Any]
    stored: frozenset[str] = frozenset()  # channels that have a value at their version
    deltas: frozenset[str] = frozenset()  # channels that are rebuilt from writes: put without a value

    @property
    def run(self) -> str | None:
        run: str | None = self.metadata.get("run_id")
        return run

    @property
    def root(self) -> str:
        """The root checkpoint at which a subgraph call began; "" if nothing is said."""
        root: str = self.metadata.get("parents", {}).get(ROOT, "")
        return root


class Span(NamedTuple):
    """A moment that is known to lie between two."""

    early: float
    late: float

    def plus(self, seconds: float) -> Span:
        return Span(self.early + seconds, self.late + seconds)


class Counts(NamedTuple):
    """How many checkpoints, pending writes and channel values there are, or went."""

    checkpoints: int
    writes: int
    blobs: int

    def minus(self, other: Counts) -> Counts:
        return Counts(*(mine - theirs for mine, theirs in zip(self, other, strict=True)))


class Limits(NamedTuple):
    """What a sweep is told, as moments; None is no limit."""

    keep_last: int | None = None
    old_before: datetime | None = None
    idle_before: datetime | None = None


@dataclass
class Thread:
    """All that a thread holds, and how long it lives.

    Attributes:
        checkpoints: What readers see.
        ancestors: Removed checkpoints that delta channels are still rebuilt from: no reader sees them.
        blobs: The channel values.
        writes: The pending writes of each checkpoint, by task and index.
        bases: What values that are stored as deltas are built on. This model is told of it, it does not plan it.
        own: The thread's own idle time in seconds, or PINNED.
        deadline: When it expires.
    """

    checkpoints: dict[Name, Saved] = field(default_factory=dict)
    ancestors: dict[Name, Saved] = field(default_factory=dict)
    blobs: dict[Blob, Any] = field(default_factory=dict)
    writes: dict[Name, dict[tuple[str, int], Pending]] = field(default_factory=dict)
    bases: dict[Blob, Blob] = field(default_factory=dict)
    own: float | None = None
    deadline: Span | None = None

    def copy(self) -> Thread:
        """Another thread with the same content. Values and checkpoints are never changed in place."""
        writes = {name: dict(found) for name, found in self.writes.items()}
        return replace(
            self,
            checkpoints=dict(self.checkpoints),
            ancestors=dict(self.ancestors),
            blobs=dict(self.blobs),
            bases=dict(self.bases),
            writes=writes,
        )

    # Looking.

    def records(self) -> dict[Name, Saved]:
        return self.ancestors | self.checkpoints

    def counts(self) -> Counts:
        return Counts(len(self.checkpoints), sum(map(len, self.writes.values())), len(self.blobs))

    def namespaces(self) -> dict[str, list[str]]:
        """The ids of each namespace, newest first."""
        found: dict[str, list[str]] = {}
        for ns, checkpoint_id in sorted(self.checkpoints, key=lambda name: name[1], reverse=True):
            found.setdefault(ns, []).append(checkpoint_id)
        return found

    def heads(self) -> list[Name]:
        """The newest checkpoint of each namespace: the greatest id."""
        return [(ns, ids[0]) for ns, ids in self.namespaces().items()]

    def newest_id(self) -> str:
        return max((checkpoint_id for _, checkpoint_id in self.checkpoints), default="")

    def made_at(self, name: Name) -> datetime | None:
        return made_at(name[1], self.checkpoints[name].ts if name in self.checkpoints else "")

    def strays(self) -> set[Name]:
        """The checkpoints that have writes but are not there: not yet, or no longer."""
        return self.writes.keys() - self.records().keys()

    def values(self, name: Name) -> dict[str, Any]:
        saved = self.checkpoints[name]
        return {channel: self.blobs[name[0], channel, saved.versions[channel]] for channel in saved.stored}

    def pending(self, name: Name) -> list[Pending]:
        return sorted(self.writes.get(name, {}).values(), key=lambda write: write[:3])

    def line(self, name: Name) -> Iterator[tuple[Name, Saved]]:
        """What a checkpoint comes from, its parent first, as far as it is stored."""
        ns, records = name[0], self.records()
        saved = records[name]
        while saved.parent is not None and (ns, saved.parent) in records:
            name = (ns, saved.parent)
            saved = records[name]
            yield name, saved

    def history(self, name: Name, channel: str) -> dict[str, Any]:
        """What a delta channel's value is made of: the nearest stored value, and the writes since, oldest first."""
        found: list[tuple[str, str, Any]] = []
        for ancestor, saved in self.line(name):
            found += [
                (write.task, write.channel, write.value)
                for write in reversed(self.pending(ancestor))
                if write.channel == channel
            ]
            if channel in saved.stored:
                return {"writes": found[::-1], "seed": self.blobs[name[0], channel, saved.versions[channel]]}
        return {"writes": found[::-1]}

    def needed(self, names: Iterable[Name]) -> dict[Name, set[str]]:
        """What the delta channels of checkpoints are rebuilt from: ancestors, and the channels whose values count.

        That is for each channel the line down to the nearest stored value.
        """
        found: dict[Name, set[str]] = {}
        for name in names:
            for channel in self.checkpoints[name].deltas - self.checkpoints[name].stored:
                for ancestor, saved in self.line(name):
                    values = found.setdefault(ancestor, set())
                    if channel in saved.stored:
                        values.add(channel)
                        break
        return found

    def needed_blobs(self) -> set[Blob]:
        """The values that some checkpoint or ancestor has, and what these are deltas of."""
        found = {(ns, c, s.versions[c]) for (ns, _), s in self.records().items() for c in s.stored}
        while more := {self.bases[blob] for blob in found if blob in self.bases} - found:
            found |= more
        return found

    # Writing.

    def put(self, name: Name, saved: Saved, values: Mapping[str, Any], new_versions: Mapping[str, int]) -> bool:
        """Store a checkpoint: new values under their versions, others where they are missing.

        False, and nothing is stored, if it would be rebuilt from a parent that readers do not see; and if its parent
        is an ancestor out of sight, which would be found again through it.
        """
        ns = name[0]
        # A value that is stored at the version of a channel belongs to it, though the put does not bring it.
        quiet = {c for c, v in saved.versions.items() if c not in new_versions and (ns, c, v) in self.blobs}
        counters = saved.metadata.get("counters_since_delta_snapshot", {})
        saved = replace(
            saved,
            stored=frozenset({*values, *quiet}),
            deltas=frozenset(c for c in counters if c in saved.versions and c not in values),
        )
        is_hidden = saved.parent is not None and (ns, saved.parent) not in self.checkpoints
        if is_hidden and (saved.deltas - saved.stored or (ns, saved.parent) in self.ancestors):
            return False
        for channel, value in values.items():
            blob = (ns, channel, saved.versions[channel])
            if channel in new_versions or blob not in self.blobs:
                self.blobs[blob] = value
        self.checkpoints[name] = saved
        self.ancestors.pop(name, None)
        return True

    def put_writes(self, name: Name, writes: Sequence[tuple[str, Any]], task: str, path: str) -> None:
        """Store writes: at an index the first stands, those of the special channels take the place of the former."""
        found = self.writes.setdefault(name, {})
        for position, (channel, value) in enumerate(writes):
            idx = SPECIAL.get(channel, position)
            write = Pending(path, task, idx, channel, value)
            if idx < 0:
                found[task, idx] = write
            else:
                found.setdefault((task, idx), write)

    # Living.

    def written(self, now: Span, idle: float | None, *, is_new: bool) -> None:
        """A write moves the deadline: by the thread's own idle time, else by that of the run or the saver.

        Without any the deadline stays where it is; but a put that makes the thread leaves none.
        """
        if self.own is not None:
            self.deadline = None if self.own == PINNED else now.plus(self.own)
        elif idle is not None:
            self.deadline = now.plus(idle)
        elif is_new:
            self.deadline = None

    def seen(self, now: Span, idle: float | None) -> None:
        """A read that counts as use, by the same idle times; it never takes time away."""
        idle = idle if self.own is None else self.own
        if self.deadline is not None and idle:
            then = now.plus(idle)
            self.deadline = Span(max(self.deadline.early, then.early), max(self.deadline.late, then.late))

    def set_own(self, now: Span, own: float | None, idle: float | None) -> bool:
        """`persist` (PINNED), `expire` (seconds or None); `idle` is the saver's. False without checkpoints."""
        if not self.checkpoints:
            return False
        self.own = own
        counts = idle if own is None else own
        self.deadline = now.plus(counts) if counts else None
        return True

    # Removing.

    def keep(self, kept: Collection[Name], is_old: Callable[[Name], bool] = lambda name: False) -> None:
        """Take all other checkpoints from what readers see; what those that stay are rebuilt from stays out of sight.

        Values that nothing has any more go, and writes that have come too late. Writes without their checkpoint may
        have come before it; they are late if everything that stays is newer, or if they are old.
        """
        strays, records, needed = self.strays(), self.records(), self.needed(kept)
        self.ancestors = {
            name: replace(records[name], stored=records[name].stored & channels)
            for name, channels in needed.items()
            if name not in kept
        }
        self.checkpoints = {name: self.checkpoints[name] for name in kept}
        records = self.records()
        needed_blobs = self.needed_blobs()
        self.blobs = {blob: value for blob, value in self.blobs.items() if blob in needed_blobs}
        oldest = min((checkpoint_id for _, checkpoint_id in records), default="")
        early = {name for name in strays if name[1] >= oldest and not is_old(name)}
        self.writes = {name: found for name, found in self.writes.items() if name in records or name in early}

    def forget_runs(self, runs: Collection[str], now: Span, idle: float | None) -> None:
        """Remove what runs have put. If no checkpoint is left the thread's own idle time is over.

        Writes that are left alone live as the saver says, unless they have a deadline.
        """
        for name, saved in self.records().items():
            if saved.run in runs:
                self.checkpoints.pop(name, None)
                self.ancestors.pop(name, None)
                self.writes.pop(name, None)
        self.keep([*self.checkpoints])
        if not self.checkpoints:
            self.own = None
            if self.deadline is None and idle is not None:
                self.deadline = now.plus(idle)

    def is_nothing(self) -> bool:
        return not self.records() and not self.writes


def chosen(thread: Thread, most: int | None = None, is_old: Callable[[Name], bool] = lambda name: False) -> set[Name]:
    """What stays of a thread for its own sake.

    1. Of each namespace the newest, and of the others those that are among the newest `most` and not old.
    2. But nothing of a subgraph call whose root checkpoint does not stay by rule 1: it was there, or it would be older
       than all that stay.
    3. Of a subgraph with memory also what it remembered at each root checkpoint that stays, but for the newest: the
       newest that is older.
    """
    stays = {
        ns: [i for n, i in enumerate(ids) if n == 0 or ((most is None or n < most) and not is_old((ns, i)))]
        for ns, ids in thread.namespaces().items()
    }
    roots = stays.get(ROOT, [])
    found: set[Name] = set()
    for ns, ids in stays.items():
        root = thread.checkpoints[ns, ids[0]].root
        is_gone = (ROOT, root) in thread.records() and root not in roots
        is_past = bool(root and roots) and all(root < other for other in roots)
        if not is_call(ns) or not (is_gone or is_past):
            found |= {(ns, checkpoint_id) for checkpoint_id in ids}
        if ns != ROOT and not is_call(ns):
            older = [[i for i in thread.namespaces()[ns] if i < root_id] for root_id in roots[1:]]
            found |= {(ns, remembered[0]) for remembered in older if remembered}
    return found


def is_idle(thread: Thread, before: datetime | None) -> bool:
    """Whether a thread goes as a whole: its newest checkpoints are older, and so are writes of what is to come.

    Not one with an idle time of its own or a pin, nor one whose age is not known.
    """
    if before is None or not thread.checkpoints or thread.own is not None:
        return False
    times = [thread.made_at(name) for name in thread.heads()]
    times += [time for name in thread.strays() if (time := thread.made_at(name)) is not None]
    return all(time is not None and time < before for time in times)


def swept(thread: Thread, limits: Limits) -> Thread:
    """What a sweep leaves of a thread."""
    if is_idle(thread, limits.idle_before):
        return Thread()
    # Of a thread that is nothing but writes these are all that can be old.
    for_writes = () if thread.checkpoints else (limits.old_before, limits.idle_before)

    def is_older(name: Name, moment: datetime | None) -> bool:
        made_at = thread.made_at(name)
        return moment is not None and made_at is not None and made_at < moment

    stays = chosen(thread, limits.keep_last, lambda name: is_older(name, limits.old_before))
    left = thread.copy()
    left.keep(stays, lambda name: any(is_older(name, moment) for moment in for_writes))
    for name in stays:  # the rules hold what they are for
        saved = thread.checkpoints[name]
        assert left.values(name) == thread.values(name)
        assert left.pending(name) == thread.pending(name)
        assert all(left.history(name, c) == thread.history(name, c) for c in saved.deltas - saved.stored)
    return left
