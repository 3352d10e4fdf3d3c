"""What stays when a thread is pruned, and in which steps the rest goes. Pure functions, no server.

A plan is always made for one exact state of a thread, told by its epoch; `forget` refuses a step if the
epoch has moved. So a plan never has to guess what may come.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from redis_ckpt._codec import Header
from redis_ckpt._keys import US

COLON = b"%3A"
STEP_ITEMS = 500  # checkpoints and blobs of one `forget`: a bound to the time the server is held; not measured


@dataclass
class Thread:
    """The heads of all checkpoints of a thread at one epoch, by field (`ns US id`)."""

    epoch: bytes
    greatest_id: bytes
    headers: dict[bytes, Header] = field(default_factory=dict)
    orphans: set[bytes] = field(default_factory=set)  # blob fields that only replaced records referred to


class Step(NamedTuple):
    """What one `forget` removes."""

    checkpoints: list[bytes]
    blobs: list[bytes]
    last: bool


def split(name: bytes) -> tuple[bytes, bytes]:
    """Namespace and id of a field, quoted."""
    ns, _, checkpoint_id = name.partition(US)
    return ns, checkpoint_id


def heads(names: Iterable[bytes]) -> dict[bytes, bytes]:
    """The field of the newest checkpoint of each namespace."""
    newest: dict[bytes, bytes] = {}
    for name in names:
        ns, _ = split(name)
        if name > newest.get(ns, b""):
            newest[ns] = name
    return newest


def keep_latest(headers: Mapping[bytes, Header]) -> set[bytes]:
    """The newest checkpoint of each namespace, and what it needs.

    The namespace of a subgraph *call* (its name has a colon) goes with the root checkpoint that started the
    call, once that one is saved and does not stay: no resume can lead there any more.
    """
    newest = heads(headers)
    kept = {newest[ns] for ns in newest if COLON not in ns}
    for ns, name in newest.items():
        root = US + headers[name].root
        if COLON in ns and (root not in headers or root in kept):
            kept.add(name)
    return with_ancestors(headers, kept)


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


def late(headers: Mapping[bytes, Header], fields: Iterable[bytes]) -> list[bytes]:
    """Of checkpoints that have writes but no record, those that are older than everything there is.

    Their writes came after they were removed. The others' may have come before their checkpoint, and stay.
    """
    oldest = min((split(name)[1] for name in headers), default=b"")
    return [field for field in fields if split(field)[1] < oldest]


def channels(header: Header) -> Iterator[bytes]:
    """The channels that a checkpoint has a stored value of."""
    return (ref.partition(US)[0] for ref in header.refs)


def blob_fields(name: bytes, header: Header) -> list[bytes]:
    """The fields of the blobs that a checkpoint refers to."""
    ns, _ = split(name)
    return [ns + US + ref for ref in header.refs]


def steps(thread: Thread, kept: set[bytes]) -> Iterator[Step]:
    """How to remove all but `kept`: oldest first, each blob with the last checkpoint that refers to it.

    So a prune that dies between two steps leaves no blob that no checkpoint names.
    """
    needed = {blob for name in kept for blob in blob_fields(name, thread.headers[name])}
    removed = sorted(thread.headers.keys() - kept, key=lambda name: split(name)[1])
    last_use = {blob: name for name in removed for blob in blob_fields(name, thread.headers[name])}
    by_name: dict[bytes, list[bytes]] = {}
    for blob, name in last_use.items():
        if blob not in needed:
            by_name.setdefault(name, []).append(blob)
    # Those that a removed checkpoint names as well go with it.
    orphans = [blob for blob in sorted(thread.orphans) if blob not in needed and blob not in last_use]
    if not removed and not thread.orphans:
        return
    checkpoints: list[bytes] = []
    blobs: list[bytes] = []
    for blob in orphans:
        blobs.append(blob)
        if len(blobs) >= STEP_ITEMS:
            yield Step([], blobs, last=False)
            blobs = []
    for name in removed:
        checkpoints.append(name)
        blobs += by_name.get(name, ())
        if len(checkpoints) + len(blobs) >= STEP_ITEMS:
            yield Step(checkpoints, blobs, last=False)
            checkpoints, blobs = [], []
    yield Step(checkpoints, blobs, last=True)
