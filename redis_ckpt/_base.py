"""The methods of both savers, in both colours, each written once.

A method builds the flow of its operation and hands it to `_run` or `_arun`; the two savers differ in
nothing but these.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
)
from langgraph.checkpoint.serde.base import SerializerProtocol
from typing_extensions import Self

from redis_ckpt import _scripts, _versions
from redis_ckpt._ack import MARGIN_SECONDS, Ack
from redis_ckpt._coalesce import Pipelining
from redis_ckpt._config import Target, target_of
from redis_ckpt._expiry import TTL, Expiry, count_of
from redis_ckpt._flow import Flow, Plain
from redis_ckpt._guards import Guards
from redis_ckpt._keys import check_prefix
from redis_ckpt._known import CACHE_BYTES, Cache, checked_bytes
from redis_ckpt._ops import Store, history, listing, previous, read, write
from redis_ckpt._ops.damage import told
from redis_ckpt._ops.listing import Pages
from redis_ckpt._ops.retain import Retention, put_and_retain
from redis_ckpt._recent import Recent
from redis_ckpt._retry import Retry
from redis_ckpt._source import Source
from redis_ckpt._whole_threads import WholeThreads
from redis_ckpt.encryption import strict_as_before
from redis_ckpt.serde import FastSerializer, checked_serde, new_copies


class RedisSaverBase(WholeThreads, BaseCheckpointSaver[Any]):
    """What `RedisSaver` and `AsyncRedisSaver` share; their docstrings say what the arguments mean."""

    def __init__(
        self,
        redis_url: Any = None,
        *,
        redis_client: Any = None,
        connection_args: Mapping[str, Any] | None = None,
        prefix: str = "ckpt",
        serde: SerializerProtocol | None = None,
        ttl: TTL | Mapping[str, Any] | float | timedelta | None = None,
        refresh_on_read: bool = False,
        keep_last: int | None = None,
        retry: Retry | None = None,
        ack: Ack | None = None,
        on_conflict: str = "ignore",
        on_damage: str = "raise",
        max_value_bytes: int | None = None,
        cache_bytes: int = CACHE_BYTES,
        pipelining: Pipelining | None = None,
    ) -> None:
        super().__init__(serde=FastSerializer() if serde is None else checked_serde(serde))
        if pipelining is not None and not isinstance(pipelining, Pipelining):
            raise TypeError(f"pipelining must be a Pipelining(...), not {pipelining!r}")
        self._prefix = check_prefix(prefix)
        self._expiry = Expiry.of(ttl, refresh_on_read)
        most = count_of(keep_last, "keep_last")
        self._retention = None if most is None else Retention(most)
        self._guards = Guards.of(ack, on_conflict, max_value_bytes, on_damage)
        self._runs = write.RecentRuns()
        self._handed_out: Recent[Target, bool] = Recent()
        for_copies = checked_bytes(cache_bytes) // 4
        self._cache, self._copies = Cache(cache_bytes - for_copies), new_copies(for_copies)
        self._pipelining = pipelining
        if retry is not None and not isinstance(retry, Retry):
            raise TypeError(f"retry must be a Retry(...), not {retry!r}")
        least_timeout_seconds = 0.0 if ack is None else ack.timeout + MARGIN_SECONDS
        self._connect(Source(redis_url, redis_client, connection_args, retry, least_timeout_seconds).sorted_out())

    @classmethod
    def from_url(cls, redis_url: str, **options: Any) -> Self:
        """The constructor, under the name that redis-py has for it."""
        return cls(redis_url, **options)

    def with_allowlist(self, extra_allowlist: Collection[tuple[str, ...]]) -> BaseCheckpointSaver[Any]:
        """A clone that lets further classes through; it shares connections and memories. LangGraph asks for it."""
        clone = super().with_allowlist(extra_allowlist)
        if clone is not self:
            clone.serde = strict_as_before(self.serde, clone.serde)
        return clone

    @abstractmethod
    def _connect(self, source: Source) -> None:
        """Make the wire; clones of the saver will share it."""

    @property
    def _store(self) -> Store:
        # with the serialiser of this clone: `with_allowlist` changes it
        return Store(self._prefix, self.serde, self._expiry, self._cache, self._guards, self._handed_out, self._copies)

    # The flows: what each operation is, for both colours.

    def _put_flow(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> Flow[RunnableConfig]:
        counts = self._retention is not None
        put = write.put(self._store, self._runs, config, checkpoint, metadata, new_versions, counts)
        return put_and_retain(self._store, self._retention, told(target_of(config), put, reads=False))

    def _put_writes_flow(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
    ) -> Flow[None]:
        flow = write.put_writes(self._store, config, writes, task_id, task_path)
        return told(target_of(config), flow, reads=False)

    def _get_tuple_flow(self, config: RunnableConfig) -> Flow[CheckpointTuple | None]:
        get_tuple = previous.get_tuple_or_previous if self._guards.skips_damage else read.get_tuple
        return get_tuple(self._store, config)

    def _list_pages(
        self,
        config: RunnableConfig | None,
        filter: dict[str, Any] | None,
        before: RunnableConfig | None,
        limit: int | None,
    ) -> Pages[CheckpointTuple]:
        return listing.listing(self._store, config, filter, before, limit)

    def _setup_flow(self) -> Flow[None]:
        yield [Plain(("SCRIPT LOAD", _scripts.script(name).text)) for name in _scripts.NAMES]

    # Reading.

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Read one checkpoint with its values and pending writes, as one atomic view.

        Args:
            config: Names the thread; `checkpoint_ns` ("" is the root) and `checkpoint_id`, without which (or
                with "") the latest is meant: the greatest id, whoever wrote last.

        Returns:
            The tuple, or None if there is no such checkpoint, and for no other reason. `pending_writes` are in
            the order `(task_path, task_id, idx)`.

        Raises:
            DamagedCheckpointError: Values, writes or the record are gone from the server, or cannot be read. With
                `on_damage="previous"` only if no older checkpoint of the namespace is whole, or an id was given.
            StorageVersionError: The record is of a newer format.
            ValueError: The config names no thread.

        Cost: 1 round trip (2 for checkpoints of a format below 4), O(channels + writes + log checkpoints). Values that
        this process last read or wrote are not sent again.
        Source: `BaseCheckpointSaver.get_tuple`.
        """
        return self._run(self._get_tuple_flow(config))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Read one checkpoint: see `get_tuple`."""
        return await self._arun(self._get_tuple_flow(config))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """List checkpoints, newest first, in pages that are read as they are consumed.

        Args:
            config: Names the thread; without `checkpoint_ns` all its namespaces are listed, newest first over
                them all; with a `checkpoint_id` that checkpoint only. None lists all threads, newest first.
            filter: Metadata that must be equal, at any depth; `True` and `1` are not. A missing key equals None.
            before: Only checkpoints with a smaller id than this config's; that one need not exist.
            limit: How many at the most, counted after the filter.

        Returns:
            An iterator of tuples. What is put or removed while it is consumed may show or not.

        Raises:
            ValueError: The limit is negative or the config names no thread; said before anything is read.
            DamagedCheckpointError: When a damaged checkpoint is reached.

        Cost: 1 round trip for each 16 checkpoints; with a filter 1 for each 64 records looked at and 1 for each 16
        matches; over all threads first a walk over the keys of the server.
        Source: `BaseCheckpointSaver.list`.
        """
        return self._walk(self._list_pages(config, filter, before, limit))

    def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """List checkpoints: see `list`."""
        return self._awalk(self._list_pages(config, filter, before, limit))

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """The writes of channels along the parents of a checkpoint, down to the nearest stored value of each.

        Args:
            config: Names the target checkpoint; its own writes do not count.
            channels: The channels to look for.

        Returns:
            For each channel its `writes`, oldest first, and its `seed` if a value was found.

        Raises:
            DamagedCheckpointError: A value or write on the way is gone.
            CheckpointerError: This saver has handed the checkpoint out, and it was removed since. One that nobody
                knows has an empty history.

        Cost: 1 round trip for each 64 ancestors, walked on the server.
        Source: `BaseCheckpointSaver.get_delta_channel_history`.
        """
        return self._run(history.delta_channel_history(self._store, config, channels))

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """The writes of channels along the parents: see `get_delta_channel_history`."""
        return await self._arun(history.delta_channel_history(self._store, config, channels))

    # Writing.

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint with its new values, all or nothing.

        Args:
            config: Names the thread and namespace; its `checkpoint_id` becomes the parent.
            checkpoint: The checkpoint. A second put of an id replaces the first.
            metadata: Stored with what `config["metadata"]` and `config["configurable"]` add to it.
            new_versions: The channels whose values are new. A value that is not new and not stored is stored too;
                a value whose channel has no version at all has no address and is left out.

        Returns:
            The config of the stored checkpoint.

        Raises:
            TypeError: A value cannot be serialised: the message names its channel. Nothing was written.
            ValueError: The config names no thread. Nothing was written.
            CheckpointerError: The parent was removed meanwhile, and delta channels would be rebuilt from its writes.
                Nothing was written.
            ConflictError: Somebody has written to the namespace since (`on_conflict="raise"`). Nothing was written.
            ValueTooLargeError: A value is larger than `max_value_bytes`. Nothing was written.
            NotAcknowledgedError: Too few have acknowledged it in time (`ack`). It is stored on the primary.
            redis.RedisError: The server or the connection failed; after a lost connection the checkpoint may be
                stored, whole. Putting it again is safe.

        Cost: 1 round trip (2 if values had to be added, or if what a value is stored as an addition to is not there any
        more), O(channels + log checkpoints). Of a list that has grown since this process last read or wrote it only
        what is new is sent.
        Source: `BaseCheckpointSaver.put`.
        """
        return self._run(self._put_flow(config, checkpoint, metadata, new_versions))

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint: see `put`."""
        return await self._arun(self._put_flow(config, checkpoint, metadata, new_versions))

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Store the writes of one task next to their checkpoint, all at once.

        Args:
            config: Names the checkpoint; it need not be stored yet.
            writes: Pairs of channel and value.
            task_id: The task. The first write of a task at an index stands, whoever repeats it; writes to the
                special channels (`__error__`, `__interrupt__` ...) replace the former one.
            task_path: Where the task stands in its step; orders the writes of several tasks.

        Raises:
            TypeError: A value cannot be serialised: the message names its channel. Nothing was written.
            ValueError: The config names no thread or no checkpoint. Nothing was written.
            ValueTooLargeError: A value is larger than `max_value_bytes`. Nothing was written.
            NotAcknowledgedError: Too few have acknowledged it in time (`ack`). It is stored on the primary.

        Cost: 1 round trip, O(writes * log writes of the thread).
        Source: `BaseCheckpointSaver.put_writes`.
        """
        self._run(self._put_writes_flow(config, writes, task_id, task_path))

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Store the writes of one task: see `put_writes`."""
        await self._arun(self._put_writes_flow(config, writes, task_id, task_path))

    # The rest.

    def setup(self) -> None:
        """Load the scripts. Optional: whatever is missing on the server is loaded when it is needed."""
        self._run(self._setup_flow())

    async def asetup(self) -> None:
        """Load the scripts: see `setup`."""
        await self._arun(self._setup_flow())

    def get_next_version(self, current: Any, channel: None) -> Any:
        """The next version of a channel: a 53-bit integer, or of the kind of `current` if that is text or a float."""
        return _versions.next_version(current)
