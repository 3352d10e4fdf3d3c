"""What the savers do beyond LangGraph's contract: how long threads live, and a look at what is stored.

Both colours of a method stand side by side, each written once, as in `_base`.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from datetime import timedelta
from typing import TypeAlias, TypeVar, overload

from redis_ckpt._expiry import TTL
from redis_ckpt._flow import Flow
from redis_ckpt._ops import Store, life, stats, verify
from redis_ckpt._ops.damage import of_thread, told
from redis_ckpt._ops.listing import Pages
from redis_ckpt._ops.stats import ThreadStats, TotalStats
from redis_ckpt._ops.sweep import Limits, Sweep, SweepReport
from redis_ckpt._ops.threads import ThreadInfo, Threads
from redis_ckpt._ops.verify import ThreadReport

T = TypeVar("T")
Length: TypeAlias = "float | timedelta"


class Upkeep(ABC):
    """The colours, and what is built on them alone."""

    @property
    @abstractmethod
    def _store(self) -> Store:
        """What the operations share."""

    @abstractmethod
    def _run(self, flow: Flow[T]) -> T:
        """Run a flow to its end, blocking."""

    @abstractmethod
    async def _arun(self, flow: Flow[T]) -> T:
        """Run a flow to its end, on the running loop."""

    def _walk(self, pages: Pages[T]) -> Iterator[T]:
        while (page := self._run(told(None, pages.next_page()))) is not None:
            yield from page

    async def _awalk(self, pages: Pages[T]) -> AsyncIterator[T]:
        while (page := await self._arun(told(None, pages.next_page()))) is not None:
            for item in page:
                yield item

    def threads(self) -> Iterator[ThreadInfo]:
        """All threads that have checkpoints, in no order.

        Cost: a walk over the keys of the server (SCAN), and 1 round trip for each page of it.
        """
        return self._walk(Threads(self._store.prefix))

    def athreads(self) -> AsyncIterator[ThreadInfo]:
        """All threads that have checkpoints: see `threads`."""
        return self._awalk(Threads(self._store.prefix))

    def expire(self, thread_id: str, ttl: Length | TTL | None) -> bool:
        """Give one thread an idle time of its own, from now on.

        It is kept in the thread: every later write, by whatever saver, counts from it, before `checkpoint_ttl` of a
        run and the saver's `ttl`. It takes the place of a pin.

        Args:
            thread_id: The thread.
            ttl: Seconds, a timedelta or a TTL (without `refresh_on_read`, which is the saver's). None takes the
                thread's own idle time or pin back: the deadline is then what this saver's `ttl` says, none without one.

        Returns:
            False if the thread has no checkpoints: then nothing was written.

        Raises:
            ValueError: The time is zero, negative, NaN or more than a hundred years, or the id is empty.
            TypeError: It is no length of time.

        Cost: 1 round trip.
        """
        return self._run(life.expire(self._store, thread_id, ttl))

    async def aexpire(self, thread_id: str, ttl: Length | TTL | None) -> bool:
        """Give one thread an idle time of its own: see `expire`."""
        return await self._arun(life.expire(self._store, thread_id, ttl))

    def persist(self, thread_id: str) -> bool:
        """Pin a thread: it has no deadline, and later writes, by whatever saver, give it none. See `expire`.

        Returns:
            False if the thread has no checkpoints: then nothing was written.

        Cost: 1 round trip.
        """
        return self._run(life.persist(self._store, thread_id))

    async def apersist(self, thread_id: str) -> bool:
        """Pin a thread: see `persist`."""
        return await self._arun(life.persist(self._store, thread_id))

    def sweep(
        self,
        thread_ids: Sequence[str] | None = None,
        *,
        keep_last: int | None = None,
        older_than: Length | None = None,
        idle_for: Length | None = None,
        dry_run: bool = False,
        on_progress: Callable[[SweepReport], object] | None = None,
    ) -> SweepReport:
        """Remove what is more, or older, than is wanted, thread by thread. Runs may go on writing meanwhile.

        A checkpoint stays if every limit that is given lets it stay. What something that stays needs is kept: shared
        values, the ancestors that delta channels are rebuilt from, pending writes. The namespace of a subgraph call
        goes with the root checkpoint that started it. In any case writes go that came after their checkpoint was
        removed, as far as they are older than all that stays; a thread of nothing but writes goes if they are older
        than the limits, and than an hour. No deadline is moved.

        Args:
            thread_ids: The threads; None for all.
            keep_last: How many checkpoints of each namespace stay, the newest.
            older_than: Checkpoints of that age go, but never the newest of a namespace. Seconds or a timedelta; the age
                comes from the UUIDv6 in the id, else from `ts`; one that tells neither stays.
            idle_for: Threads whose newest checkpoint is of that age go as a whole, at once. Those with a pin or an idle
                time of their own stay.
            dry_run: Count only: nothing is written.
            on_progress: Called with the report so far after each thread.

        Returns:
            What was done. A thread that is damaged or busy is in its `failures`.

        Raises:
            ValueError: `keep_last` is below 1, a length of time negative or NaN, or an id empty; said before anything
                is read.
            TypeError: An argument is of a wrong type; said as early.

        Cost: a walk over the keys of the server (SCAN) if no threads are given. For each thread 1 round trip for each
        100 checkpoints, and where something goes 1 for each 100 checkpoints, values and writes.
        """
        if inspect.iscoroutinefunction(on_progress):
            raise TypeError("on_progress is a coroutine function, which sweep cannot await: use asweep")
        sweep = self._sweep(thread_ids, Limits.of(keep_last, older_than, idle_for), dry_run, on_progress)
        for report in self._walk(sweep):
            if on_progress is not None:
                on_progress(report)
        return sweep.report()

    async def asweep(
        self,
        thread_ids: Sequence[str] | None = None,
        *,
        keep_last: int | None = None,
        older_than: Length | None = None,
        idle_for: Length | None = None,
        dry_run: bool = False,
        on_progress: Callable[[SweepReport], Awaitable[object] | object] | None = None,
    ) -> SweepReport:
        """Remove what is more, or older, than is wanted: see `sweep`. `on_progress` may be a coroutine function."""
        sweep = self._sweep(thread_ids, Limits.of(keep_last, older_than, idle_for), dry_run, on_progress)
        async for report in self._awalk(sweep):
            if on_progress is not None and inspect.isawaitable(told := on_progress(report)):
                await told
        return sweep.report()

    def _sweep(self, thread_ids: Sequence[str] | None, limits: Limits, dry_run: bool, on_progress: object) -> Sweep:
        if on_progress is not None and not callable(on_progress):
            raise TypeError(f"on_progress must be a function that takes a report, not {on_progress!r}")
        return Sweep(self._store, thread_ids, limits, dry_run)

    @overload
    def stats(self, thread_id: str) -> ThreadStats | None: ...
    @overload
    def stats(self, thread_id: None = None) -> TotalStats: ...
    def stats(self, thread_id: str | None = None) -> ThreadStats | TotalStats | None:
        """How much a thread holds, by kind and namespace, in counts and bytes; or all threads together.

        Returns:
            The figures of the thread, None if it has no checkpoint; without an id the totals. Not one atomic view of
            what is being written meanwhile.

        Raises:
            DamagedCheckpointError: The thread has lost records. The totals leave such threads out and name them.

        Cost: 1 round trip for each 100 checkpoints, and 1 for each 250 checkpoints, values and writes; for the totals
        that of each thread, and a walk over the keys of the server (SCAN).
        """
        return self._run(self._stats_flow(thread_id))

    @overload
    async def astats(self, thread_id: str) -> ThreadStats | None: ...
    @overload
    async def astats(self, thread_id: None = None) -> TotalStats: ...
    async def astats(self, thread_id: str | None = None) -> ThreadStats | TotalStats | None:
        """How much a thread holds, or all together: see `stats`."""
        return await self._arun(self._stats_flow(thread_id))

    def _stats_flow(self, thread_id: str | None) -> Flow[ThreadStats | TotalStats | None]:
        if thread_id is None:
            return (yield from stats.total_stats(self._store))
        return (yield from of_thread(thread_id, stats.thread_stats(self._store, thread_id)))

    def verify(self, thread_id: str) -> ThreadReport | None:
        """Read all of a thread and report what is missing or cannot be read. It changes nothing.

        Returns:
            The report: `report.ok`, or its `problems`. None if there is nothing of the thread. What looks wrong is
            looked at once more before it is reported, since runs may go on writing meanwhile.

        Cost: 1 round trip for each checkpoint and 1 for each 100 to 250 records, places, values and writes; all values
        are sent. Twice that where something is wrong.
        """
        return self._run(verify.verify(self._store, thread_id))

    async def averify(self, thread_id: str) -> ThreadReport | None:
        """Read all of a thread and report what is wrong: see `verify`."""
        return await self._arun(verify.verify(self._store, thread_id))
