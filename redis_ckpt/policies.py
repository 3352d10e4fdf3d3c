"""What stays when a thread is pruned, and in which order the rest goes. Pure functions, no server.

A plan is always made for one exact state of a thread, told by its epoch; `forget` refuses it if the epoch
has moved. So a plan never has to guess what may come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from redis_ckpt._codec import Header
from redis_ckpt._keys import US

COLON = b"%3A"


@dataclass
class Thread:
    """The heads of all checkpoints of a thread at one epoch, by field (`ns US id`).

    Attributes:
        epoch: Its count of changes; b"" if it has no checkpoint.
        greatest_id: Over all namespaces.
        headers: All checkpoints.
        orphans: Fields of blobs that no record names any more.
        strays: Fields of checkpoints that have writes but no record, in the order of their bytes.
        idle: The thread's own idle time as it is stored; b"" if it has none.
    """

    epoch: bytes
    greatest_id: bytes
    headers: dict[bytes, Header] = field(default_factory=dict)
    orphans: set[bytes] = field(default_factory=set)
    strays: list[bytes] = field(default_factory=list)
    idle: bytes = b""


class Group(NamedTuple):
    """What goes together: a checkpoint (or nothing) and the blobs that nothing needs once it is gone."""

    checkpoint: bytes
    blobs: list[bytes]


def split(name: bytes) -> tuple[bytes, bytes]:
    """Namespace and id of a field, quoted."""
    ns, _, checkpoint_id = name.partition(US)
    return ns, checkpoint_id


def id_of(name: bytes) -> bytes:
    """The id in a field, quoted."""
    return name.partition(US)[2]


def _never(_: bytes) -> bool:
    return False


def retained(
    headers: Mapping[bytes, Header], most: int | None = None, is_old: Callable[[bytes], bool] = _never
) -> set[bytes]:
    """Of each namespace the newest `most` checkpoints that are not old, and what they need.

    The newest of a namespace stays however old it is. The namespace of a subgraph *call* (its name has a colon)
    goes with the root checkpoint that started the call: once that one is saved and does not stay, or would be
    older than every root checkpoint that stays, no resume can lead there any more.

    Args:
        headers: All checkpoints of the thread.
        most: How many of a namespace; None for all.
        is_old: Whether a checkpoint is too old to stay.
    """
    by_namespace: dict[bytes, list[bytes]] = {}
    for name in sorted(headers, reverse=True):
        by_namespace.setdefault(split(name)[0], []).append(name)
    stay = {
        ns: {names[0]}.union(name for name in names[1:most] if not is_old(name)) for ns, names in by_namespace.items()
    }
    roots = stay.get(b"", set())
    oldest = min(map(id_of, roots), default=b"")
    kept: set[bytes] = set()
    for ns, names in by_namespace.items():
        if COLON not in ns or not _is_over(headers[names[0]].root, headers, roots, oldest):
            kept |= stay[ns]
    return with_ancestors(headers, kept)


def _is_over(root: bytes, headers: Mapping[bytes, Header], roots: set[bytes], oldest: bytes) -> bool:
    name = US + root
    return name not in roots and (name in headers or b"" < root < oldest)


def keep_latest(headers: Mapping[bytes, Header]) -> set[bytes]:
    """The newest checkpoint of each namespace, and what it needs: see `retained`."""
    return retained(headers, 1)


def without_runs(headers: Mapping[bytes, Header], runs: set[bytes]) -> set[bytes]:
    """All checkpoints that none of the runs (quoted ids) has written."""
    return {name for name, header in headers.items() if header.run not in runs}


def with_ancestors(headers: Mapping[bytes, Header], kept: set[bytes]) -> set[bytes]:
    """`kept`, and for each the ancestors down to the nearest value of each of its delta channels.

    A delta channel's value is rebuilt from the writes of those ancestors, so they stay, writes and all.
    """
    result = set(kept)
    for name in kept:
        wanted = set(headers[name].deltas).difference(channels(headers[name]))
        ns, _ = split(name)
        seen = {name}
        while wanted and (name := ns + US + headers[name].parent) in headers and name not in seen:
            seen.add(name)
            result.add(name)
            wanted.difference_update(channels(headers[name]))
    return result


def late(kept: Iterable[bytes], strays: Iterable[bytes], is_old: Callable[[bytes], bool] = _never) -> list[bytes]:
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


def groups(thread: Thread, kept: set[bytes], unwritten: Iterable[bytes] = ()) -> list[Group]:
    """How to remove all but `kept`: oldest first, each blob with the last checkpoint that refers to it.

    So a prune that dies between two groups leaves no blob that no checkpoint names.

    Args:
        thread: What there is.
        kept: The checkpoints that stay.
        unwritten: Checkpoints without a record whose writes go too.
    """
    needed = {blob for name in kept for blob in blob_fields(name, thread.headers[name])}
    removed = sorted(thread.headers.keys() - kept, key=id_of)
    last_use = {blob: name for name in removed for blob in blob_fields(name, thread.headers[name])}
    by_name: dict[bytes, list[bytes]] = {}
    for blob, name in last_use.items():
        if blob not in needed:
            by_name.setdefault(name, []).append(blob)
    # Those that a removed checkpoint names as well go with it.
    orphans = [Group(b"", [blob]) for blob in sorted(thread.orphans) if blob not in needed and blob not in last_use]
    return [
        *orphans,
        *(Group(name, by_name.get(name, [])) for name in removed),
        *(Group(name, []) for name in unwritten),
    ]
