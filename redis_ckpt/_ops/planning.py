"""Reading a thread to plan what stays, and carrying a plan out.

The script `forget` does nothing if the thread has changed since it was read; then the caller catches up and
plans again. See `policies`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeAlias

from redis_ckpt import _scripts, policies
from redis_ckpt._codec import RS, Header, decode_header
from redis_ckpt._flow import Call, Flow
from redis_ckpt._keys import NOTHING, ThreadKeys, newer_ranges, plain_range, thread_keys, unquote
from redis_ckpt._ops import Store
from redis_ckpt.errors import CheckpointerError, DamagedCheckpointError

HEADERS_PAGE = 250
NAMES_A_CALL = 500  # checkpoints and blobs; their writes are not known here: `forget` itself bounds what it does
MOST_TRIES = 200  # of one thread that is being written to all the time

Keep: TypeAlias = "Callable[[dict[bytes, Header]], set[bytes]]"


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
    is_old: Callable[[bytes], bool] | None = None,
    dry_run: bool = False,
    tries: int | None = None,
) -> Flow[Removed]:
    """Remove all checkpoints of a thread that `keep` does not name, and the blobs and writes that nothing else needs.

    Safe while the thread is being written to. What a call removed stays removed if a later one fails.

    Args:
        store: Where.
        thread_id: The thread.
        keep: Names the checkpoints that stay, of the heads of all.
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
        kept = keep(thread.headers)
        late = policies.late(kept, thread.strays, is_old) if is_old else policies.late(kept, thread.strays)
        plan = policies.groups(thread, kept, late)
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
            thread.headers.pop(group.checkpoint, None)
            thread.orphans.difference_update(group.blobs)
        at += done
        unsure = False
    return True


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
            return policies.Thread(b"", b"", strays=strays.found) if strays.found else None
        thread.strays = [name for name in strays.found if name not in thread.headers]
        if heads.epoch == thread.epoch:
            return thread
        newer = yield from _newer(prefix, thread_id, thread)
        if newer is not None:
            return newer
    raise CheckpointerError(f"thread {thread_id!r} changed {MOST_TRIES} times while its checkpoints were read")


class _Heads:
    """The walk over the heads of a thread, namespace by namespace."""

    def __init__(self, thread_id: str) -> None:
        self._thread_id = thread_id
        self._after = b""
        self.thread: policies.Thread | None = None
        self.epoch = b""  # at the last page
        self.ended = False

    def calls(self, keys: ThreadKeys) -> list[Call]:
        return [] if self.ended else [_scripts.headers(keys, HEADERS_PAGE, plain_range(self._after), NOTHING)]

    def take(self, reply: list[Any]) -> None:
        page = _parse(self._thread_id, reply)
        self.epoch = page.epoch
        self.ended = len(page.headers) < HEADERS_PAGE
        if self.thread is None:
            if not page.headers:
                if page.epoch:  # there are records, but the order that leads to them is lost
                    raise DamagedCheckpointError(self._thread_id, "", "", "the order of its checkpoints is")
                return
            self.thread = page
        self._after = max(page.headers, default=b"")
        greatest = self.thread.greatest_id
        found = {name: header for name, header in page.headers.items() if policies.id_of(name) <= greatest}
        self.thread.headers = found if self.thread is page else self.thread.headers | found


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
    if not now.epoch or not thread.epoch or int(now.epoch) - int(thread.epoch) != count or count >= HEADERS_PAGE:
        return None
    now.headers = thread.headers | now.headers
    now.strays = [name for name in thread.strays if name not in now.headers]
    return now


def _parse(thread_id: str, reply: list[Any]) -> policies.Thread:
    epoch, orphans, idle, root_top, other_top = reply[:5]
    found: dict[bytes, Header] = {}
    for name, head in _pairs(reply[5:]):
        ns, checkpoint_id = (unquote(part) for part in policies.split(name))
        if head is None:
            raise DamagedCheckpointError(thread_id, ns, checkpoint_id, "its record is")
        found[name] = decode_header(head, f"checkpoint {checkpoint_id!r} of thread {thread_id!r}")
    greatest = max(root_top, other_top)
    return policies.Thread(epoch, greatest, found, {o for o in orphans.split(RS) if o}, idle=idle)


def _pairs(flat: list[Any]) -> Iterator[tuple[bytes, bytes | None]]:
    return zip(flat[::2], flat[1::2], strict=True)
