"""What stays when a thread is pruned, and in which order the rest goes. Pure functions, no server.

A plan is always made for one exact state of a thread, told by its epoch; `forget` refuses it if the epoch
has moved. So a plan never has to guess what may come.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from redis_ckpt._codec import Header
from redis_ckpt._keys import US

COLON = b"%3A"
SENDS = b"__pregel_tasks"  # among the delta channels: pending sends that only the parent has


@dataclass
class Thread:
    """The heads of all checkpoints of a thread at one epoch, by field (`ns US id`).

    Attributes:
        epoch: Its count of changes; b"" if it has no checkpoint.
        greatest_id: Over all namespaces.
        headers: All records.
        ancestors: Those of them that no reader sees: they are kept for the delta channels of others.
        orphans: Fields of blobs that no record names any more.
        bases: Of blobs that are deltas what they are built on: fields both.
        strays: Fields of checkpoints that have writes but no record, in the order of their bytes.
        idle: The thread's own idle time as it is stored; b"" if it has none.
        writes: How many writes there are.
    """

    epoch: bytes
    greatest_id: bytes
    headers: dict[bytes, Header] = field(default_factory=dict)
    ancestors: set[bytes] = field(default_factory=set)
    orphans: set[bytes] = field(default_factory=set)
    bases: dict[bytes, bytes] = field(default_factory=dict)
    strays: list[bytes] = field(default_factory=list)
    idle: bytes = b""
    writes: int = 0

    @property
    def checkpoints(self) -> dict[bytes, Header]:
        """The heads of what readers see."""
        return {name: header for name, header in self.headers.items() if name not in self.ancestors}


class Kept(NamedTuple):
    """What stays of a thread.

    Attributes:
        checkpoints: What readers go on seeing.
        ancestors: What only stays for the delta channels of those, and the channels whose values are needed of it.
    """

    checkpoints: set[bytes]
    ancestors: dict[bytes, set[bytes]]


class Group(NamedTuple):
    """What goes together.

    Attributes:
        checkpoint: A checkpoint; b"" for blobs alone.
        blobs: The blobs that nothing needs once it is gone.
        refs: None to remove the checkpoint; to make it an ancestor the refs that it keeps.
    """

    checkpoint: bytes
    blobs: list[bytes]
    refs: tuple[bytes, ...] | None = None


def heads(names: Iterable[bytes]) -> list[bytes]:
    """The field of the newest checkpoint of each namespace."""
    newest: dict[bytes, bytes] = {}
    for name in names:
        ns, _ = split(name)
        newest[ns] = max(name, newest.get(ns, b""))
    return list(newest.values())


def split(name: bytes) -> tuple[bytes, bytes]:
    """Namespace and id of a field, quoted."""
    ns, _, checkpoint_id = name.partition(US)
    return ns, checkpoint_id


def id_of(name: bytes) -> bytes:
    """The id in a field, quoted."""
    return name.partition(US)[2]


def never(_: bytes) -> bool:
    """Whether a checkpoint is old, where none is."""
    return False


def retained(thread: Thread, most: int | None = None, is_old: Callable[[bytes], bool] = never) -> Kept:
    """Of each namespace the newest `most` checkpoints that are not old, and what they need.

    The newest of a namespace stays however old it is. A subgraph with a memory of its own (no colon in its name) also
    keeps what it remembered at each root checkpoint that stays, but for the newest: whoever goes back there looks for
    the newest of the memory below it. The namespace of a subgraph *call* (its name has a colon)
    goes with the root checkpoint that started the call: once that one is saved and does not stay, or would be
    older than every root checkpoint that stays, no resume can lead there any more.

    Args:
        thread: What there is.
        most: How many of a namespace; None for all.
        is_old: Whether a checkpoint is too old to stay.
    """
    checkpoints = thread.checkpoints
    by_namespace: dict[bytes, list[bytes]] = {}
    for name in sorted(checkpoints, reverse=True):
        by_namespace.setdefault(split(name)[0], []).append(name)
    stay = {
        ns: {names[0]}.union(name for name in names[1:most] if not is_old(name)) for ns, names in by_namespace.items()
    }
    roots = stay.get(b"", set())
    for ns, names in by_namespace.items():
        if ns and COLON not in ns:
            stay[ns] |= _remembered(names, roots)
    oldest = min(map(id_of, roots), default=b"")
    kept: set[bytes] = set()
    for ns, names in by_namespace.items():
        if COLON not in ns or not _is_over(checkpoints[names[0]].root, thread.headers, roots, oldest):
            kept |= stay[ns]
    return with_ancestors(thread.headers, kept)


def _remembered(names: list[bytes], roots: set[bytes]) -> set[bytes]:
    """For each root checkpoint but the newest the newest of a namespace (newest first) that is older than it."""
    ids = [id_of(name) for name in reversed(names)]
    found = (bisect_left(ids, id_of(root)) for root in sorted(roots)[:-1])
    return {names[-at] for at in found if at > 0}


def _is_over(root: bytes, headers: Mapping[bytes, Header], roots: set[bytes], oldest: bytes) -> bool:
    name = US + root
    return name not in roots and (name in headers or b"" < root < oldest)


def keep_latest(thread: Thread) -> Kept:
    """The newest checkpoint of each namespace, and what it needs: see `retained`."""
    return retained(thread, 1)


def without_runs(thread: Thread, runs: set[bytes]) -> Kept:
    """All checkpoints that none of the runs (quoted ids) has written, with the ancestors that are left to them."""
    left = {name: header for name, header in thread.headers.items() if header.run not in runs}
    return with_ancestors(left, left.keys() - thread.ancestors)


def with_ancestors(headers: Mapping[bytes, Header], kept: set[bytes]) -> Kept:
    """`kept`, and for each the ancestors down to the nearest value of each of its delta channels.

    A delta channel's value is rebuilt from the writes of those ancestors, so they stay, writes and all. They are
    not whole themselves (another delta channel may have its nearest value further back), so readers lose sight of
    them, and they lose the values that are not needed.
    """
    ancestors: dict[bytes, set[bytes]] = {}
    walked: dict[bytes, set[bytes]] = {}  # the channels that were followed through a checkpoint already
    for start in kept:
        wanted = unstored(headers[start])
        ns, _ = split(start)
        if SENDS in wanted:
            wanted.discard(SENDS)
            if (parent := ns + US + headers[start].parent) in headers and parent not in kept:
                ancestors.setdefault(parent, set())
        name = start
        while wanted and (name := ns + US + headers[name].parent) in headers:
            wanted -= walked.get(name, set())
            walked.setdefault(name, set()).update(wanted)
            found = wanted.intersection(channels(headers[name]))
            wanted -= found
            if name in kept:
                wanted -= unstored(headers[name])  # it is followed for itself
            elif found or wanted:
                ancestors.setdefault(name, set()).update(found)
    return Kept(kept, ancestors)


def unstored(header: Header) -> set[bytes]:
    """The delta channels that a checkpoint has no stored value of."""
    return set(header.deltas).difference(channels(header))


def late(kept: Iterable[bytes], strays: Iterable[bytes], is_old: Callable[[bytes], bool] = never) -> list[bytes]:
    """Of checkpoints that have writes but no record, those that are old, or older than everything that stays.

    Their writes came after they were removed. The others' may have come before their checkpoint, and stay.
    """
    oldest = min(map(id_of, kept), default=b"")
    return [name for name in strays if id_of(name) < oldest or is_old(name)]


def channels(header: Header) -> Iterator[bytes]:
    """The channels that a checkpoint has a stored value of."""
    return (ref.partition(US)[0] for ref in header.refs)


def blob_fields(name: bytes, header: Header) -> list[bytes]:
    """The fields of the blobs that a checkpoint refers to."""
    ns, _ = split(name)
    return [ns + US + ref for ref in header.refs]


def with_bases(blobs: Iterable[bytes], bases: Mapping[bytes, bytes]) -> set[bytes]:
    """The blobs, and all that they are built on."""
    return set(_bases_first(blobs, bases))


def _bases_first(blobs: Iterable[bytes], bases: Mapping[bytes, bytes]) -> list[bytes]:
    """The blobs and what they are built on, that before them: while a delta is there, its bases can be found."""
    order: dict[bytes, None] = {}
    for blob in blobs:
        chain: dict[bytes, None] = {}
        name: bytes | None = blob
        while name is not None and name not in order and name not in chain:
            chain[name] = None
            name = bases.get(name)
        order |= dict.fromkeys(reversed(chain))
    return list(order)


def groups(thread: Thread, kept: Kept, unwritten: Iterable[bytes] = ()) -> list[Group]:
    """How to remove all but `kept`: newest first, children before parents, each blob with its last reference.

    So what readers see has all its ancestors between any two groups, and a prune that dies there leaves no blob that no
    record needs. What a delta is built on goes with the last delta, or whatever else refers to it.

    Args:
        thread: What there is.
        kept: What stays.
        unwritten: Checkpoints without a record whose writes go too.
    """
    left: dict[bytes, Header] = {}
    for name, header in thread.headers.items():
        if name in kept.checkpoints:
            left[name] = header
        elif name in kept.ancestors:
            wanted = kept.ancestors[name]
            left[name] = header._replace(refs=tuple(r for r in header.refs if r.partition(US)[0] in wanted))
    needed = with_bases((blob for name, header in left.items() for blob in blob_fields(name, header)), thread.bases)
    changed = [
        name
        for name in _children_first(thread.headers)
        if name not in kept.checkpoints
        and not (name in left and name in thread.ancestors and left[name].refs == thread.headers[name].refs)
    ]
    last_use = {
        blob: name for name in changed for blob in with_bases(blob_fields(name, thread.headers[name]), thread.bases)
    }
    by_name: dict[bytes, list[bytes]] = {}
    for blob, name in last_use.items():
        if blob not in needed:
            by_name.setdefault(name, []).append(blob)
    # Those that a changed checkpoint names as well go with it.
    orphans = [
        Group(b"", [blob])
        for blob in _bases_first(sorted(thread.orphans), thread.bases)
        if blob not in needed and blob not in last_use
    ]
    return [
        *orphans,
        *(Group(name, by_name.get(name, []), left[name].refs if name in left else None) for name in changed),
        *(Group(name, []) for name in unwritten),
    ]


def _children_first(headers: Mapping[bytes, Header]) -> list[bytes]:
    """Newest first, but a parent behind its children even where clocks have gone wrong."""
    newest_first = sorted(headers, key=id_of, reverse=True)
    children: dict[bytes, list[bytes]] = {}
    for name in newest_first:
        children.setdefault(split(name)[0] + US + headers[name].parent, []).append(name)
    order: dict[bytes, None] = {}
    begun: set[bytes] = set()
    for start in newest_first:
        stack = [start]
        while stack:
            name = stack[-1]
            ahead = [] if name in begun else [c for c in children.get(name, ()) if c not in begun]
            begun.add(name)
            if ahead:
                stack += ahead
            else:
                order[stack.pop()] = None
    return list(order)
