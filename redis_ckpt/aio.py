"""AsyncRedisSaver: the checkpointer for asyncio."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, TypeVar

from typing_extensions import Self

from redis_ckpt._aclient import AsyncWire, Portal, run_on
from redis_ckpt._base import RedisSaverBase
from redis_ckpt._coalesce import Pipelining
from redis_ckpt._flow import Flow, Primed, arun
from redis_ckpt._process import at_fork
from redis_ckpt._source import Source

T = TypeVar("T")


class AsyncRedisSaver(RedisSaverBase):
    """A LangGraph checkpointer on plain Redis or Valkey, for asyncio.

    Made anywhere, with or without a running loop; several loops may use it one after another, each over its
    own connections. Its blocking methods are for worker threads: they run on a loop of the saver's own, in a thread
    of its own (with a client that was given and cannot be copied for another loop, such as a cluster's, on the loop
    that used it last). Called in a thread whose loop runs they raise at once, for they would wait for themselves.

    Args:
        redis_url: `redis://`, `rediss://` (TLS), `unix://`, `redis+cluster://host:port,host:port`,
            `redis+sentinel://host:port,host:port/service/db` (with TLS `rediss+...`), `embedded://` (a server of its
            own) or `embedded:///path` (one that keeps its data there).
        redis_client: An asyncio client instead (it may also stand in the place of the URL). It is not closed with
            the saver.
        connection_args: Options of redis-py for the clients that are made from the URL. By default connecting may take
            5 seconds and a reply 10.
        prefix: What all keys begin with. Savers with different prefixes never meet.
        serde: The serialiser; by default a FastSerializer, whose bytes are those of LangGraph's own.
        ttl: How long a thread is kept after its last write: seconds, a timedelta, a TTL, or the mapping
            `{"default_ttl": minutes, "refresh_on_read": bool}`. A run may bring its own in
            `configurable={"checkpoint_ttl": seconds}`; what `expire` and `persist` said of a thread goes before both.
            None sets no deadline.
        refresh_on_read: Whether reading a thread counts as well as writing.
        keep_last: How many checkpoints of each namespace are kept. Older ones go several at a time, in the put that
            makes them a few too many; what others need stays.
        retry: How often a round trip that has failed for a while is sent once more: see `Retry`. A `redis_client` that
            is given repeats by its own policy (on a cluster by this one too).
        ack: What `aput` and `aput_writes` wait for before they return, in the same round trip, which concurrent calls
            share: see `Ack`.
        on_conflict: `"raise"`: a checkpoint of a run (source `input` or `loop`) whose parent is not the newest of its
            namespace any more is refused with ConflictError. Corrections (`update_state`) and runs that begin at an
            older checkpoint on purpose stay what they are. `"ignore"`: it forks the thread, as with other savers.
        on_damage: `"previous"`: where the latest checkpoint is damaged, `get_tuple` answers the newest of its namespace
            that is whole, and `list` passes over those that are not; the log says which. A run that goes on from there
            has its checkpoints behind the damaged ones, which stay. `"raise"`: DamagedCheckpointError.
        max_value_bytes: Values that are larger, as serialised, are refused with ValueTooLargeError; by default those
            larger than servers take, 512 MiB. Checkpoints that bring more than 1 MiB are logged once for each thread.
        cache_bytes: How much of what was last read and written is kept in memory, so that only what is new of a value
            is sent, stored and read. Shared by all threads and clones. 0 keeps nothing: every value goes whole.
        pipelining: How concurrent calls of one event loop share connections.

    Raises:
        ValueError: As `RedisSaver`.

    Cost: none: the first use connects. `embedded://` starts its server here.
    """

    def _connect(self, source: Source) -> None:
        self._wire = AsyncWire("AsyncRedisSaver", source, self._pipelining or Pipelining())
        self._home = _Home()

    @classmethod
    @asynccontextmanager
    async def from_conn_string(cls, redis_url: Any = None, **options: Any) -> AsyncIterator[Self]:
        """A saver that is closed at the end of the `async with` block; the options are the constructor's."""
        async with cls(redis_url, **options) as saver:
            yield saver

    async def _arun(self, flow: Flow[T]) -> T:
        self._wire.check_open()
        self._home.loop = asyncio.get_running_loop()
        return await arun(Primed(flow), self._wire.send)

    def _run(self, flow: Flow[T]) -> T:
        self._wire.check_open()
        loop = self._home.loop_for_blocking(self._wire.is_bound)
        result: T = run_on(loop, arun(Primed(flow), self._wire.send))
        return result

    async def aclose(self) -> None:
        """Close the connections that this saver has opened, for its clones too. Later calls raise ClosedError."""
        await self._wire.aclose()
        await asyncio.to_thread(self._home.close)

    def close(self) -> None:
        """Close the connections: see `aclose`."""
        run_on(self._home.loop_for_blocking(True), self._wire.aclose())
        self._home.close()

    async def __aenter__(self) -> Self:
        self._home.loop = asyncio.get_running_loop()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()


class _Home:
    """Which loop the blocking methods run on. Shared by the clones of a saver."""

    def __init__(self) -> None:
        self.begin_in_child()
        at_fork(self)

    def begin_in_child(self) -> None:
        """No loop of the parent runs here."""
        self.loop: asyncio.AbstractEventLoop | None = None  # the one that used the saver last
        self._portal: Portal | None = None
        self._lock = threading.Lock()

    def loop_for_blocking(self, is_bound: bool) -> asyncio.AbstractEventLoop:
        """The loop for a blocking call from this thread: our own, which does not end while somebody waits.

        With `is_bound` it is that of the last asynchronous call, if that still runs.

        Raises:
            RuntimeError: This thread's own loop is running: the call would stop it for ever.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            raise RuntimeError(
                "a blocking method of AsyncRedisSaver was called inside an event loop, which would stand still: "
                "await the method with an 'a' before its name (aget_tuple, aput, aclose ...; ainvoke on the graph), "
                "or call it in a worker thread"
            )
        if is_bound and self.loop is not None and self.loop.is_running():
            return self.loop
        with self._lock:
            if self._portal is None:
                self._portal = Portal()
            return self._portal.loop

    def close(self) -> None:
        """Stop the loop of our own, if there is one."""
        with self._lock:
            if self._portal is not None:
                self._portal.close()
                self._portal = None
