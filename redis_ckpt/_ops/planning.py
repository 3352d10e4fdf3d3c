"""Reading a thread to plan what stays, and carrying a plan out.

The script `forget` does nothing if the thread has changed since it was read; then the caller catches up and
plans again. See `policies`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, TypeAlias

from redis_ckpt import _scripts, policies
from redis_ckpt._codec import decode_header
from redis_ckpt._flow import Call, Flow
from redis_ckpt._keys import (
    GS,
    NOTHING,
    RS,
    Range,
    ThreadKeys,
    ancestors_range,
    field_of_member,
    newer_ranges,
    plain_range,
    thread_keys,
    unquote,
)
from redis_ckpt._ops import Store
from redis_ckpt._ops.damage import of_thread
from redis_ckpt.errors import CheckpointerError, DamagedCheckpointError

HEADERS_PAGE = 100
FIRST_MEMBER = 7  # of a reply of `headers`
NAMES_A_CALL = 120  # checkpoints and blobs; their writes are not known here: `forget` itself bounds what it does
MOST_TRIES = 200  # of one thread that is being written to all the time

Keep: TypeAlias = "Callable[[policies.Thread], policies.Kept]"


@dataclass
class Removed:
    """What went, or would go: counts, and the bytes of names and values."""

    checkpoints: int = 0
    writes: int = 0
    blobs: int = 0
    bytes: int = 0

    def add(self, checkpoints: int, writes: int, blobs: int, size: int) -> None:
        """Add what one call has removed."""
        self.checkpoints += checkpoints
        self.writes += writes
        self.blobs += blobs
        self.bytes += size


def remove_all_but(
    store: Store,
    thread_id: str,
    keep: Keep,
    *,
    thread: policies.Thread | None = None,
    is_old: Callable[[bytes], bool] = policies.never,
    dry_run: bool = False,
    tries: int | None = None,
) -> Flow[Removed]:
    """Remove all checkpoints of a thread that `keep` does not name, and the blobs and writes that nothing needs.

    Safe while the thread is being written to. What a call removed stays removed if a later one fails.

    Args:
        store: Where.
        thread_id: The thread.
        keep: Says what stays.
        thread: What was read of it already.
        is_old: Whether writes without a checkpoint go by the age of its id, beside those that are older than all.
        dry_run: Count only.
        tries: How often to plan, of a thread that changes all the time.

    Raises:
        CheckpointerError: It changed that often.
    """
    removed = Removed()
    if thread is None:
        thread = yield from read_thread(store.prefix, thread_id)
    tries = tries or MOST_TRIES
    for _ in range(tries):
        if thread is None:
            return removed
        kept = keep(thread)
        named = [*kept.checkpoints, *kept.ancestors]
        plan = policies.groups(thread, kept, policies.late(named, thread.strays, is_old))
        if (yield from carry_out(store, thread_id, thread, plan, removed, dry_run)):
            return removed
        if dry_run:
            removed = Removed()
            thread = yield from read_thread(store.prefix, thread_id)
        else:
            thread = yield from _caught_up(store.prefix, thread_id, thread)
    raise CheckpointerError(
        f"thread {thread_id!r} changed {tries} times while it was being pruned: prune it again when it is "
        "quieter. It is whole; what was removed was no longer needed."
    )


def carry_out(
    store: Store,
    thread_id: str,
    thread: policies.Thread,
    plan: Sequence[policies.Group],
    removed: Removed,
    dry_run: bool,
) -> Flow[bool]:
    """Do the plan, follow it in `thread` and count it in `removed`; False where the thread has changed meanwhile."""
    keys, at = thread_keys(store.prefix, thread_id), 0
    unsure = bool(thread.orphans)  # orphans that are all needed again: the call only says so
    while at < len(plan) or unsure:
        part = _part(plan, at)
        mode: _scripts.Mode = "count" if dry_run else "last" if at + len(part) == len(plan) else "part"
        (reply,) = yield [_scripts.forget(keys, thread.epoch, mode, part, store.expiry.idle_ms)]
        if reply == 0:
            return False
        thread.epoch, done = reply[:2]
        removed.add(*reply[2:])
        for group in islice(part, done):
            _follow(thread, group)
        at += done
        unsure = False
    return True


def _follow(thread: policies.Thread, group: policies.Group) -> None:
    thread.orphans.difference_update(group.blobs)
    if group.refs is None:
        thread.headers.pop(group.checkpoint, None)
        thread.ancestors.discard(group.checkpoint)
    else:
        thread.headers[group.checkpoint] = thread.headers[group.checkpoint]._replace(refs=group.refs)
        thread.ancestors.add(group.checkpoint)


def _part(plan: Sequence[policies.Group], at: int) -> list[policies.Group]:
    part: list[policies.Group] = []
    names = 0
    for group in islice(plan, at, None):
        if names >= NAMES_A_CALL:
            break
        part.append(group)
        names += 1 + len(group.blobs)
    return part


def read_thread(prefix: bytes, thread_id: str) -> Flow[policies.Thread | None]:
    """The heads of all checkpoints at one epoch, and what writes have none, in pages. None if there is nothing."""
    return of_thread(thread_id, _read_thread(prefix, thread_id))


def _read_thread(prefix: bytes, thread_id: str) -> Flow[policies.Thread | None]:
    keys = thread_keys(prefix, thread_id)
    for _ in range(MOST_TRIES):
        heads, strays = _Heads(thread_id), _Strays()
        while not (heads.ended and strays.ended):
            replies = yield [*heads.calls(keys), *strays.calls(keys)]
            if not strays.ended:
                strays.take(replies[-1])
            if not heads.ended:
                heads.take(replies[0])
        thread = heads.thread
        if thread is None:
            return policies.Thread(b"", b"", strays=strays.found, writes=heads.writes) if strays.found else None
        thread.strays = [name for name in strays.found if name not in thread.headers]
        if heads.epoch == thread.epoch:
            return thread
        newer = yield from _newer(prefix, thread_id, thread)
        if newer is not None:
            return newer
    raise CheckpointerError(f"thread {thread_id!r} changed {MOST_TRIES} times while its checkpoints were read")


class _Heads:
    """The walk over the heads of a thread: its ancestors and, namespace by namespace, what readers see."""

    def __init__(self, thread_id: str) -> None:
        self._thread_id = thread_id
        self._ranges: list[Range] = [ancestors_range(b""), plain_range(b"")]
        self.thread: policies.Thread | None = None
        self.epoch = b""  # at the last page
        self.writes = 0

    @property
    def ended(self) -> bool:
        return self._ranges == [NOTHING, NOTHING]

    def calls(self, keys: ThreadKeys) -> list[Call]:
        return [] if self.ended else [_scripts.headers(keys, HEADERS_PAGE, *self._ranges)]

    def take(self, reply: list[Any]) -> None:
        page = _parse(self._thread_id, reply)
        self.epoch, self.writes = page.epoch, page.writes
        if self.thread is None and not page.headers and page.epoch:
            # there are records, but the order that leads to them is lost
            raise DamagedCheckpointError(self._thread_id, "", "", "the order of its checkpoints is missing")
        behind = [_next(_members(reply), is_ancestor) for is_ancestor in (True, False)]
        self._ranges = [
            NOTHING if after is None else range_of(after)
            for after, range_of in zip(behind, (ancestors_range, plain_range), strict=True)
        ]
        if self.thread is None and page.headers:
            self.thread = replace(page, headers={}, ancestors=set())
        if self.thread is not None:
            greatest = self.thread.greatest_id  # what is newer is taken in at the end, if nothing else has changed
            self.thread.headers |= {
                name: header
                for name, header in page.headers.items()
                if name in page.ancestors or policies.id_of(name) <= greatest
            }
            self.thread.ancestors |= page.ancestors
            self.thread.bases |= page.bases


def _members(reply: list[Any]) -> list[bytes]:
    return reply[FIRST_MEMBER : FIRST_MEMBER + 2 * reply[FIRST_MEMBER - 1] : 2]


def _next(members: list[bytes], ancestors: bool) -> bytes | None:
    """The member to go on behind, of one of the two kinds in a page; None where that kind is at its end."""
    own = [member for member in members if member.startswith(GS) is ancestors]
    return own[-1] if len(own) == HEADERS_PAGE else None


class _Strays:
    """The walk over the checkpoints that have writes but no record."""

    def __init__(self) -> None:
        self._after = b""
        self.found: list[bytes] = []
        self.ended = False

    def calls(self, keys: ThreadKeys) -> list[Call]:
        return [] if self.ended else [_scripts.strays(keys, self._after, HEADERS_PAGE)]

    def take(self, reply: list[Any]) -> None:
        self._after, *found = reply
        self.found += found
        self.ended = not self._after


def _caught_up(prefix: bytes, thread_id: str, thread: policies.Thread) -> Flow[policies.Thread | None]:
    newer = yield from _newer(prefix, thread_id, thread)
    if newer is not None:
        return newer
    return (yield from read_thread(prefix, thread_id))


def _newer(prefix: bytes, thread_id: str, thread: policies.Thread) -> Flow[policies.Thread | None]:
    """The thread with what came since, if that is nothing but newer checkpoints, put once each; else None."""
    own, others = newer_ranges(thread.greatest_id)
    keys = thread_keys(prefix, thread_id)
    replies = yield [_scripts.headers(keys, HEADERS_PAGE, own, others)]
    now = _parse(thread_id, replies[0])
    # Every put and every forget adds one to the epoch. If newer checkpoints account for all of it, nothing
    # else has happened.
    count = len(now.headers)
    if not (now.epoch.isdigit() and thread.epoch.isdigit()) or count >= HEADERS_PAGE:
        return None
    if int(now.epoch) - int(thread.epoch) != count:
        return None
    now.headers, now.ancestors = thread.headers | now.headers, thread.ancestors
    now.bases = thread.bases | now.bases
    now.strays = [name for name in thread.strays if name not in now.headers]
    return now


def _parse(thread_id: str, reply: list[Any]) -> policies.Thread:
    epoch, orphans, idle, writes, root_top, other_top, count = reply[:FIRST_MEMBER]
    bases = reply[FIRST_MEMBER + 2 * count :]
    thread = policies.Thread(
        epoch,
        max(root_top, other_top),
        orphans={o for o in orphans.split(RS) if o},
        bases=dict(zip(bases[::2], bases[1::2], strict=True)),
        idle=idle,
        writes=writes,
    )
    for member, head in zip(_members(reply), reply[FIRST_MEMBER + 1 :: 2], strict=False):
        name = field_of_member(member)
        ns, checkpoint_id = (unquote(part) for part in policies.split(name))
        if head is None:
            raise DamagedCheckpointError(thread_id, ns, checkpoint_id, "its record is missing")
        thread.headers[name] = decode_header(head, f"checkpoint {checkpoint_id!r} of thread {thread_id!r}")
        if member.startswith(GS):
            thread.ancestors.add(name)
    return thread
