"""RedisSaver: the checkpointer for blocking code."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, TypeVar

from typing_extensions import Self

from redis_ckpt._base import RedisSaverBase
from redis_ckpt._client import SyncWire
from redis_ckpt._flow import Flow, Primed, run
from redis_ckpt._source import Source

T = TypeVar("T")


class RedisSaver(RedisSaverBase):
    """A LangGraph checkpointer on plain Redis or Valkey.

    Threads may share one saver. Its `a...` methods run the blocking ones in a thread; in asyncio programs use
    `AsyncRedisSaver`. Use it as it is, or in a `with` block that closes it.

    Args:
        redis_url: `redis://`, `rediss://` (TLS), `unix://`, `redis+cluster://host:port,host:port`,
            `redis+sentinel://host:port,host:port/service/db` (with TLS `rediss+...`), `embedded://` (a server of its
            own) or `embedded:///path` (one that keeps its data there).
        redis_client: A client instead (it may also stand in the place of the URL): of redis-py or valkey-py, for one
            server, a cluster or a service of Sentinel, or of fakeredis. It is not closed with the saver.
        connection_args: Options of redis-py for the client that is made from the URL. By default connecting may take 5
            seconds and a reply 10.
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
        ack: What `put` and `put_writes` wait for before they return, in the same round trip: see `Ack`.
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
        pipelining: How concurrent calls share connections. Only for `AsyncRedisSaver`; here it has no effect.

    Raises:
        ValueError: The URL is of an unknown scheme, both or neither of URL and client are given, the client
            decodes replies, or the prefix would break the layout of the keys, or `ttl` or `keep_last` is out of range.

    Cost: none: the first use connects. `embedded://` starts its server here.
    """

    def _connect(self, source: Source) -> None:
        self._wire = SyncWire("RedisSaver", source)

    @classmethod
    @contextmanager
    def from_conn_string(cls, redis_url: Any = None, **options: Any) -> Iterator[Self]:
        """A saver that is closed at the end of the `with` block; the options are the constructor's."""
        with cls(redis_url, **options) as saver:
            yield saver

    def _run(self, flow: Flow[T]) -> T:
        return run(Primed(flow), self._wire.send)

    async def _arun(self, flow: Flow[T]) -> T:
        # What is taken from the caller's objects is taken here, before another thread goes on.
        return await asyncio.to_thread(run, Primed(flow), self._wire.send)

    def close(self) -> None:
        """Close the connections that this saver has opened, for its clones too. Later calls raise ClosedError."""
        self._wire.close()

    async def aclose(self) -> None:
        """Close the connections: see `close`."""
        await asyncio.to_thread(self._wire.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
