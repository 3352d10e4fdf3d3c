"""get_delta_channel_history: the writes and the nearest stored value of channels, along the parents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import DeltaChannelHistory
from langgraph.checkpoint.serde.base import SerializerProtocol

from redis_ckpt import _codec, _scripts
from redis_ckpt._config import Target, target_of
from redis_ckpt._delta import BrokenChainError
from redis_ckpt._flow import Flow
from redis_ckpt._keys import channel_of, quote, thread_keys, unquote
from redis_ckpt._ops import Store
from redis_ckpt._ops.blobs import Blobs
from redis_ckpt._ops.damage import told
from redis_ckpt.errors import CheckpointerError, DamagedCheckpointError

ANCESTORS_PAGE = 64


def delta_channel_history(
    store: Store, config: RunnableConfig, channels: Sequence[str]
) -> Flow[Mapping[str, DeltaChannelHistory]]:
    """Walk the parents of a checkpoint. One round trip for each 64 ancestors, none for no channels."""
    target = target_of(config)
    return told(target, _history(store, target, store.expiry.read(config), channels))


def _history(
    store: Store, asked: Target, idle_ms: int | None, channels: Sequence[str]
) -> Flow[Mapping[str, DeltaChannelHistory]]:
    thread_id, ns, checkpoint_id = asked
    walk = _Walk(store.serde, thread_id, ns, channels)
    keys, target, at = thread_keys(store.prefix, thread_id), quote(checkpoint_id), b""
    while channels:
        wanted = [quote(channel) for channel in walk.wanted]
        (reply,) = yield [_scripts.history(keys, quote(ns), target, at, ANCESTORS_PAGE, wanted, idle_ms)]
        if reply is None:
            # An id that nobody knows has no history. Of one that was there, an empty one would be a wrong state.
            if at or store.handed_out.get(Target(thread_id, ns, checkpoint_id)):
                raise _removed(thread_id, ns, unquote(target))
            break
        target = reply[0]
        at = walk.take(reply)
        if not (at and walk.wanted):
            break
    return walk.result()


def _removed(thread_id: str, ns: str, checkpoint_id: str) -> CheckpointerError:
    return CheckpointerError(
        f"checkpoint {checkpoint_id!r} of thread {thread_id!r}, namespace {ns!r}, was removed since it was read "
        "(pruned, deleted or expired), so its delta channels cannot be rebuilt any more: read the thread again."
    )


class Ancestor(NamedTuple):
    """One ancestor in a reply of `history`.

    Attributes:
        name: Its id, quoted.
        seeds: The refs of the values that were found here.
        records: Theirs, and of what they are built on, by ref; None where one is gone.
        writes: Names and records of writes, in turn; None where a record is gone.
    """

    name: bytes
    seeds: list[bytes]
    records: dict[bytes, bytes | None]
    writes: list[Any]


def ancestors_of(reply: list[Any]) -> Iterator[Ancestor]:
    """The ancestors in a reply of `history`, behind its first three parts."""
    at = 3
    while at < len(reply):
        name, parts = reply[at], []
        at += 1
        for _ in ("seeds", "bases", "writes"):
            end = at + 1 + 2 * reply[at]
            parts.append(reply[at + 1 : end])
            at = end
        seeds, bases, writes = parts
        found = seeds + bases
        yield Ancestor(name, seeds[::2], dict(zip(found[::2], found[1::2], strict=True)), writes)


class _Walk:
    """What was found so far. Writes are collected newest first and turned round at the end."""

    def __init__(self, serde: SerializerProtocol, thread_id: str, ns: str, channels: Sequence[str]) -> None:
        self._serde, self._thread_id, self._ns = serde, thread_id, ns
        self._writes: dict[str, list[_codec.Write]] = {channel: [] for channel in channels}
        self._seeds: dict[str, Any] = {}
        self._seen: set[bytes] = set()
        self.wanted = dict.fromkeys(channels)

    def take(self, reply: list[Any]) -> bytes:
        """Take a page of ancestors; answers the ancestor to go on from, b"" at the end."""
        if len(reply) == 1:  # a record of another format
            _codec.check_format(reply[0], f"a checkpoint of thread {self._thread_id!r}")
        named, following, intact = reply[:3]
        if intact < 0:
            raise self._damaged(named, "its record is missing")
        for ancestor in ancestors_of(reply):
            if ancestor.name in self._seen:
                return b""  # a parent chain that bites its tail
            self._seen.add(ancestor.name)
            if not intact or None in ancestor.writes:
                raise self._damaged(ancestor.name, "pending writes of the thread are missing")
            # A value at an ancestor is from before the writes stored there: these count too.
            self._take_writes(ancestor.writes)
            self._take_seeds(ancestor)
        return bytes(following)

    def _take_writes(self, flat: list[bytes]) -> None:
        pairs = zip(flat[::2], flat[1::2], strict=True)
        for write in reversed(_codec.decode_writes(pairs, self._thread_id)):
            if write.channel in self.wanted:
                self._writes[write.channel].append(write)

    def _take_seeds(self, ancestor: Ancestor) -> None:
        blobs = Blobs(ancestor.records, self._thread_id)
        for ref in ancestor.seeds:
            channel = channel_of(ref)
            try:
                found = blobs.get(ref, channel)
            except KeyError:
                raise self._damaged(ancestor.name, "values are missing", [channel]) from None
            except BrokenChainError as error:
                raise self._damaged(ancestor.name, f"values are changed or missing ({error})", [channel]) from None
            if found is not None:
                with _codec.Reader(self._serde, self._thread_id) as read:
                    self._seeds[channel] = read(*found, channel)
            del self.wanted[channel]

    def _damaged(self, ancestor: bytes, what: str, channels: Sequence[str] = ()) -> DamagedCheckpointError:
        return DamagedCheckpointError(self._thread_id, self._ns, unquote(ancestor), what, channels)

    def result(self) -> dict[str, DeltaChannelHistory]:
        """The answer of the contract: for each channel its writes, oldest first, and its seed if there is one."""
        result: dict[str, DeltaChannelHistory] = {}
        for channel, writes in self._writes.items():
            with _codec.Reader(self._serde, self._thread_id) as read:
                decoded = [write.value(read) for write in reversed(writes)]
            result[channel] = {"writes": decoded}
            if channel in self._seeds:
                result[channel]["seed"] = self._seeds[channel]
        return result
