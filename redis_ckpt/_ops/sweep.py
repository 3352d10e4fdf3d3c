"""sweep: the limits of checkpoints and threads, thread by thread over all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any, NamedTuple

from redis_ckpt import _scripts, policies
from redis_ckpt._expiry import count_of, seconds_of
from redis_ckpt._flow import Flow
from redis_ckpt._keys import thread_keys
from redis_ckpt._ops import Store
from redis_ckpt._ops.ages import Ages
from redis_ckpt._ops.damage import of_thread
from redis_ckpt._ops.planning import Removed, carry_out, read_thread, remove_all_but
from redis_ckpt._ops.remove import thread_texts
from redis_ckpt._ops.threads import Walk
from redis_ckpt.errors import CheckpointerError


@dataclass(frozen=True)
class SweepReport:
    """What a sweep has done so far, or would do.

    Attributes:
        threads: Threads looked at.
        threads_removed: Of these, how many went as a whole.
        checkpoints: Checkpoints removed.
        writes: Pending writes removed.
        blobs: Channel values removed.
        bytes_freed: The bytes of the names and values of all these; the server's own overhead comes on top.
        missing: The ids given of which there is nothing.
        failures: Threads that could not be swept, and why; the sweep goes on behind them.
        dry_run: Whether nothing was removed.
    """

    threads: int = 0
    threads_removed: int = 0
    checkpoints: int = 0
    writes: int = 0
    blobs: int = 0
    bytes_freed: int = 0
    missing: tuple[str, ...] = ()
    failures: Mapping[str, CheckpointerError] = field(default_factory=dict)
    dry_run: bool = False


WRITES_STAY = timedelta(hours=1)  # of a thread without a checkpoint: the first of a run may come before it


class Limits(NamedTuple):
    """What a sweep keeps.

    Attributes:
        keep_last: The newest of each namespace; None for all.
        before: Checkpoints made before this are old; None for none.
        idle_before: Threads whose newest checkpoint was made before this go; None for none.
    """

    keep_last: int | None
    before: datetime | None
    idle_before: datetime | None

    @classmethod
    def of(cls, keep_last: Any, older_than: Any, idle_for: Any) -> Limits:
        """From the arguments of `sweep`.

        Raises:
            ValueError: A count is below 1, or a length of time is negative or NaN.
            TypeError: An argument is of a wrong type.
        """
        now = datetime.now(timezone.utc)
        count = count_of(keep_last, "keep_last")
        old = None if older_than is None else seconds_of(older_than, "older_than", zero=True)
        idle = None if idle_for is None else seconds_of(idle_for, "idle_for")
        before, idle_before = (None if s is None else now - timedelta(seconds=s) for s in (old, idle))
        return cls(count, before, idle_before)


class Sweep:
    """The pages of a sweep: one report after each thread, each with all that came before.

    Args:
        store: Where.
        thread_ids: The threads; None for all that there are, also those with nothing but writes.
        limits: What stays.
        dry_run: Count only.

    Raises:
        ValueError: An id is empty.
        TypeError: `thread_ids` or `dry_run` is of a wrong type.
    """

    def __init__(self, store: Store, thread_ids: Sequence[str] | None, limits: Limits, dry_run: bool) -> None:
        if not isinstance(dry_run, bool):
            raise TypeError(f"dry_run must be True or False, not {dry_run!r}")
        self._store, self._limits, self._dry_run = store, limits, dry_run
        self._given = thread_ids is not None
        self._walk: Walk | None = None if thread_ids is not None else Walk(store.prefix, strays=True)
        self._ahead: Iterator[str] = iter(() if thread_ids is None else thread_texts(thread_ids))
        self._threads = self._threads_removed = 0
        self._removed = Removed()
        self._missing: list[str] = []
        self._failures: dict[str, CheckpointerError] = {}

    def report(self) -> SweepReport:
        """What was done so far."""
        gone = self._removed
        return SweepReport(
            self._threads,
            self._threads_removed,
            gone.checkpoints,
            gone.writes,
            gone.blobs,
            gone.bytes,
            tuple(self._missing),
            dict(self._failures),
            self._dry_run,
        )

    def next_page(self) -> Flow[Iterable[SweepReport] | None]:
        """Sweep one more thread; None when all are done."""
        thread_id = yield from self._next_id()
        if thread_id is None:
            return None
        try:
            yield from of_thread(thread_id, self._sweep(thread_id))
        except CheckpointerError as error:
            self._failures[thread_id] = error
        return (self.report(),)

    def _next_id(self) -> Flow[str | None]:
        while (thread_id := next(self._ahead, None)) is None and self._walk is not None:
            page = yield from self._walk.next_ids()
            if page is None:
                self._walk = None
            else:
                self._ahead = iter(page)
        return thread_id

    def _sweep(self, thread_id: str) -> Flow[None]:
        thread = yield from read_thread(self._store.prefix, thread_id)
        if thread is None:
            if self._given:
                self._missing.append(thread_id)
            return
        self._threads += 1
        ages = Ages()
        yield from self._ask(ages, thread_id, thread)
        if self._is_idle(thread, ages):
            if (yield from self._drop(thread_id, thread)):
                return
            thread = yield from read_thread(self._store.prefix, thread_id)  # it has come to life
        if thread is not None:
            yield from self._shorten(thread_id, thread, ages)

    def _ask(self, ages: Ages, thread_id: str, thread: policies.Thread) -> Flow[None]:
        """Read the times that will be wanted and that ids do not tell."""
        if self._limits.before is not None:
            yield from ages.ask(self._store, thread_id, thread.checkpoints)
        elif self._limits.idle_before is not None:
            yield from ages.ask(self._store, thread_id, policies.heads(thread.checkpoints))

    def _is_idle(self, thread: policies.Thread, ages: Ages) -> bool:
        """Whether the thread goes as a whole: not if it has an idle time of its own, or is pinned."""
        limit = self._limits.idle_before
        if limit is None or not thread.checkpoints or thread.idle:
            return False
        heads = [ages.at(name) for name in policies.heads(thread.checkpoints)]
        early = [at for at in map(ages.at, thread.strays) if at is not None]  # writes of what is still to come
        return all(at is not None and at < limit for at in [*heads, *early])

    def _drop(self, thread_id: str, thread: policies.Thread) -> Flow[bool]:
        """Remove a whole thread at once; False if it has changed."""
        gone, keys = Removed(), thread_keys(self._store.prefix, thread_id)
        epoch, plan = thread.epoch, policies.groups(thread, policies.Kept(set(), {}), thread.strays)
        counted = yield from carry_out(self._store, thread_id, thread, plan, gone, dry_run=True)
        if counted and not self._dry_run:
            replies = yield [_scripts.drop(keys, epoch, thread.idle, thread.writes)]
            counted = replies[0] == 1
        if counted:
            self._threads_removed += 1
            self._count(gone)
        return counted

    def _shorten(self, thread_id: str, thread: policies.Thread, ages: Ages) -> Flow[None]:
        limits = self._limits
        # Writes of a living thread may come before their checkpoint, and so may the first of a new one.
        given = [limit for limit in (limits.before, limits.idle_before) if limit is not None]
        early = None if thread.headers else max(given, default=None)
        writes_before = early and min(early, datetime.now(timezone.utc) - WRITES_STAY)

        def is_older(limit: datetime | None) -> Callable[[bytes], bool]:
            return lambda name: limit is not None and (at := ages.at(name)) is not None and at < limit

        def keep(thread: policies.Thread) -> policies.Kept:
            return policies.retained(thread, limits.keep_last, is_older(limits.before))

        old, dry = is_older(writes_before), self._dry_run
        all_writes = None if thread.headers else thread.writes
        gone = yield from remove_all_but(self._store, thread_id, keep, thread=thread, is_old=old, dry_run=dry)
        self._threads_removed += gone.writes == all_writes
        self._count(gone)

    def _count(self, gone: Removed) -> None:
        self._removed.add(gone.checkpoints, gone.writes, gone.blobs, gone.bytes)
