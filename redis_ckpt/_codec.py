r"""Records: what stands in Redis for a checkpoint, a blob and a write, byte by byte.

Every record begins with its format version, the digit `1`, deltas with `2`. GS, RS and US are the bytes 0x1D, 0x1E and
0x1F; `quoted` parts (see `_keys`) hold none of them.

    checkpoint   1 parent GS run GS root GS deltas GS refs GS body
                   parent, run: quoted ids, or nothing; root: the root checkpoint that a subgraph call belongs to
                   deltas: quoted names, each with RS behind it, of the delta channels that are not put with a value;
                     `__pregel_tasks` stands there for pending sends that are among the parent's writes
                   refs: channel US version, joined by RS, of the blobs that this checkpoint refers to
                   body: msgpack of `_Body`; nothing in an ancestor, which only delta channels are rebuilt from
    blob         1 f type US bytes      a value, as the serialiser's (type, bytes)
                 1 e                    a version without a value, where there was one
                 2 d ...                a delta of an earlier version (see `_delta`); its name has GS before it
    write        1 channel US task_path US type US bytes

Lua reads the head of a checkpoint and the channel of a write with string functions alone. The body keeps
the types of versions; the metadata are the serialiser's, so an encrypting one covers them.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from operator import itemgetter
from typing import Any, NamedTuple, cast

import msgspec
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.types import TASKS

from redis_ckpt._keys import GS, RS, US, blob_ref, quote, unquote
from redis_ckpt.errors import StorageVersionError

FORMAT = b"1"
WHOLE, EMPTY, DELTA = b"1f", b"1e", b"2d"  # how the records of blobs begin
SENDS_IN_PARENT = 4  # checkpoints below this format left their pending sends among the parent's writes

_PLAIN_KEYS = {"v", "id", "ts", "channel_values", "channel_versions", "versions_seen", "updated_channels"}
_NAME_TYPES, _VERSION_TYPES = {str}, {int, float, str}


class _Body(msgspec.Struct, array_like=True):
    """The part of a checkpoint record that only this library reads."""

    metadata_type: str
    metadata: bytes
    v: int = 0
    ts: str = ""
    versions: dict[str, int | float | str] = {}
    seen: dict[str, dict[str, int | float | str]] = {}
    updated: list[str] | None = None
    # The serialiser's (type, bytes) of the whole checkpoint without its values, where it is not of today's
    # shape: older formats, extra keys, or odd types. The four fields above are then unused.
    odd: tuple[str, bytes] | None = None


_encode_body = msgspec.msgpack.Encoder().encode
_decode_body = msgspec.msgpack.Decoder(_Body).decode


class Header(NamedTuple):
    """The head of a checkpoint record. All parts are quoted bytes."""

    parent: bytes
    run: bytes
    root: bytes
    deltas: tuple[bytes, ...]
    refs: tuple[bytes, ...]


class Record(NamedTuple):
    """A decoded checkpoint record: the checkpoint still without its values."""

    header: Header
    checkpoint: dict[str, Any]
    metadata: CheckpointMetadata


def dumps(serde: SerializerProtocol, value: Any, what: str, channel: str | None = None) -> tuple[str, bytes]:
    """The serialiser's (type, bytes).

    Raises:
        TypeError: The value cannot be serialised; the message names `what`, and nothing has been sent.
    """
    try:
        return serde.dumps_typed(value)
    except Exception as exc:
        named = what if channel is None else f"{what} {channel!r}"
        raise TypeError(
            f"cannot serialise {named}, of type {type(value).__name__}: {exc}. Nothing was written."
        ) from exc


def merged_metadata(config: RunnableConfig, metadata: CheckpointMetadata) -> dict[str, Any]:
    """The metadata with what the config adds, by LangGraph's own rule, but with every text as it was.

    `get_checkpoint_metadata` drops NUL characters for the sake of Postgres; Redis keeps them.
    """
    merged: dict[str, Any] = dict(get_checkpoint_metadata(config, metadata))
    merged.update(metadata)
    for source in (config.get("configurable"), config.get("metadata")):
        for key, value in (source or {}).items():
            if key in merged and key not in metadata and isinstance(value, str) and "\0" in value:
                merged[key] = value
    return merged


class Value(NamedTuple):
    """A value as the serialiser gave it."""

    channel: str
    version: bytes  # as text
    kind: bytes  # quoted
    data: bytes

    @property
    def record(self) -> bytes:
        """The record of the value as a whole."""
        return b"".join((WHOLE, self.kind, US, self.data))


class Encoded(NamedTuple):
    """A checkpoint ready to be sent."""

    record: tuple[bytes, bytes, bytes]  # up to its refs, the refs that the client knows of, and behind them
    run_id: str
    emptied: list[bytes]  # refs of new versions without a value
    quiet: list[bytes]  # refs of versions that are not new, of channels without a value
    values: dict[bytes, Value]  # by ref, of the new versions
    others: dict[bytes, str]  # ref -> channel, of the values that are not new


def encode_checkpoint(
    serde: SerializerProtocol,
    config: RunnableConfig,
    checkpoint: Checkpoint,
    metadata: CheckpointMetadata,
    new_versions: ChannelVersions,
) -> Encoded:
    """Everything that a put sends: the record and the new blobs."""
    values, versions = checkpoint["channel_values"], checkpoint["channel_versions"]
    full = merged_metadata(config, metadata)
    refs: list[bytes] = []
    others: dict[bytes, str] = {}
    for channel in values:
        # A value without a version has no address; it is left out, as InMemorySaver leaves it out.
        version = versions.get(channel)
        if version is not None:
            refs.append(ref := blob_ref(channel, version))
            if new_versions.get(channel) != version:
                others[ref] = channel
    fresh: dict[bytes, Value] = {}
    emptied: list[bytes] = []
    for channel, version in new_versions.items():
        ref = blob_ref(channel, version)
        if channel in values:
            fresh[ref] = encode_value(serde, channel, ref, values[channel])
        else:
            emptied.append(ref)
    quiet = [blob_ref(c, v) for c, v in versions.items() if c not in values and c not in new_versions]
    deltas = [quote(c) for c in full.get("counters_since_delta_snapshot") or () if c in versions and c not in values]
    if leaves_sends_in_parent(checkpoint):
        deltas.append(quote(TASKS))
    parents = full.get("parents")
    root = parents.get("", "") if isinstance(parents, dict) else ""
    run_id = str(full.get("run_id") or "")
    head = GS.join(
        (
            FORMAT + quote(str(config["configurable"].get("checkpoint_id") or "")),
            quote(run_id),
            quote(str(root or "")),
            b"".join(delta + RS for delta in deltas),
            b"",
        )
    )
    record = head, RS.join(refs), _encoded_body(serde, checkpoint, full)
    return Encoded(record, run_id, emptied, quiet, fresh, others)


def leaves_sends_in_parent(checkpoint: Mapping[str, Any]) -> bool:
    """Whether the checkpoint's format is so old that its pending sends are among its parent's writes."""
    v = checkpoint.get("v", 0)
    return isinstance(v, int) and v < SENDS_IN_PARENT


def _encoded_body(serde: SerializerProtocol, checkpoint: Checkpoint, metadata: dict[str, Any]) -> bytes:
    metadata_type, metadata_bytes = dumps(serde, metadata, "the metadata")
    if _is_plain(checkpoint):
        try:
            return _encode_body(
                _Body(
                    metadata_type,
                    bytes(metadata_bytes),
                    checkpoint["v"],
                    checkpoint["ts"],
                    checkpoint["channel_versions"],
                    cast("dict[str, Any]", checkpoint["versions_seen"]),
                    checkpoint["updated_channels"],
                )
            )
        except (UnicodeEncodeError, OverflowError, msgspec.MsgspecError):
            pass  # lone surrogates, huge numbers: what the serialiser does with them
    rest = {k: v for k, v in checkpoint.items() if k != "channel_values"}
    odd_type, odd_bytes = dumps(serde, rest, "the checkpoint's versions")
    return _encode_body(_Body(metadata_type, bytes(metadata_bytes), odd=(odd_type, bytes(odd_bytes))))


def _is_plain(checkpoint: Checkpoint) -> bool:
    if checkpoint.keys() != _PLAIN_KEYS:
        return False
    # Exactly these types: a subclass, such as an enum, would come back as its base.
    if type(checkpoint["v"]) is not int or type(checkpoint["ts"]) is not str:
        return False
    seen, updated = checkpoint["versions_seen"], checkpoint["updated_channels"]
    if updated is not None and (type(updated) is not list or not {*map(type, updated)} <= _NAME_TYPES):
        return False
    if not {*map(type, seen)} <= _NAME_TYPES:
        return False
    for versions in (checkpoint["channel_versions"], *seen.values()):
        for name, version in versions.items():
            if type(name) is not str or type(version) not in _VERSION_TYPES:
                return False
    return True


def decode_header(record: bytes, what: str = "a checkpoint") -> Header:
    """The head of a checkpoint record."""
    check_format(record, what)
    parent, run, root, deltas, refs = record[1:].split(GS, 5)[:5]
    return _header(parent, run, root, deltas, refs)


def _header(parent: bytes, run: bytes, root: bytes, deltas: bytes, refs: bytes) -> Header:
    return Header(parent, run, root, tuple(deltas.split(RS)[:-1]), tuple(refs.split(RS)) if refs else ())


def decode_checkpoint(serde: SerializerProtocol, record: bytes, what: object) -> Record:
    """A checkpoint record, its values still to be added."""
    if record[:1] != FORMAT:
        check_format(record, str(what))
    parent, run, root, deltas, refs, raw = record[1:].split(GS, 5)
    body = _decode_body(raw)
    checkpoint: dict[str, Any]
    if body.odd is None:
        checkpoint = {
            "v": body.v,
            "ts": body.ts,
            "channel_versions": body.versions,
            "versions_seen": body.seen,
            "updated_channels": body.updated,
        }
    else:
        checkpoint = serde.loads_typed(body.odd)
    metadata = serde.loads_typed((body.metadata_type, body.metadata))
    return Record(_header(parent, run, root, deltas, refs), checkpoint, metadata)


def decode_ts(serde: SerializerProtocol, record: bytes) -> Any:
    """The `ts` of a checkpoint record; None of an ancestor's, or where it cannot be read."""
    raw = record.split(GS, 5)[5]
    try:
        body = _decode_body(raw) if raw else None
        if body is None or body.odd is None:
            return body and body.ts
        return serde.loads_typed(body.odd).get("ts")
    except Exception:  # a key or class that is gone: whoever reads the checkpoint will be told
        return None


def check_format(record: bytes, what: str, newest: bytes = FORMAT) -> None:
    """Refuse a record of a format that is not known here; `newest` is what is known of its kind.

    Raises:
        StorageVersionError: It names both versions.
    """
    if record[:1] != FORMAT:
        raise StorageVersionError(what, record[:1].decode("latin-1"), newest.decode())


def encode_value(serde: SerializerProtocol, channel: str, ref: bytes, value: Any) -> Value:
    """One channel value at the version that its ref names."""
    kind, data = dumps(serde, value, "the value of channel", channel)
    # a serialiser may hand out the caller's own bytearray, which the caller may change
    return Value(channel, ref.partition(US)[2], quote(kind), bytes(data))


def decode_whole(record: bytes, channel: str, thread_id: str) -> tuple[bytes, bytes] | None:
    """The serialiser's (type, bytes) in the record of a value that is stored whole; None if there is no value."""
    if record[:2] != WHOLE:
        check_format(record, f"channel {channel!r} of thread {thread_id!r}", DELTA[:1])
        if record != EMPTY:
            raise ValueError("the record of a value begins with something else")
        return None
    at = record.index(US)
    return record[2:at], record[at + 1 :]


_place = itemgetter(0, 1, 2)


class Write(NamedTuple):
    """One pending write. The order of the fields is the order in which LangGraph applies writes."""

    task_path: str
    task_id: str
    idx: int
    channel: str
    kind: bytes
    data: bytes

    def value(self, read: Reader) -> tuple[str, str, Any]:
        """The write as `pending_writes` has it."""
        return self.task_id, self.channel, read(self.kind, self.data, self.channel)


def encode_write(serde: SerializerProtocol, channel: str, task_path: str, value: Any) -> bytes:
    """The record of one write."""
    kind, data = dumps(serde, value, "the write to channel", channel)
    return b"".join((FORMAT, quote(channel), US, quote(task_path), US, quote(kind), US, data))


def decode_writes(pairs: Iterable[tuple[bytes, bytes]], thread_id: str) -> list[Write]:
    """Writes in the order `(task_path, task_id, idx)`, from pairs of name and record."""
    writes = []
    for name, record in pairs:
        if record[:1] != FORMAT:
            check_format(record, f"a write of thread {thread_id!r}")
        _, _, task, idx = name.split(US)
        channel, path, kind, data = record[1:].split(US, 3)
        writes.append(Write(unquote(path), unquote(task), int(idx), unquote(channel), kind, data))
    if len(writes) > 1:
        writes.sort(key=_place)
    return writes


_reading = threading.local()  # its `now` is the Reader at work in this thread, for the log


class Reader:
    """Decodes values of one thread, inside a `with`: what the serialiser logs says meanwhile what was being read.

    With `copies` it may copy messages that were decoded before (see `_copies`).
    """

    __slots__ = ("_loads", "channel", "thread_id")

    def __init__(self, serde: SerializerProtocol, thread_id: str, copies: object = None) -> None:
        loads_with = None if copies is None else getattr(serde, "loads_with", None)
        self._loads = serde.loads_typed if loads_with is None else loads_with(copies)
        self.thread_id = thread_id
        self.channel = ""

    def __enter__(self) -> Reader:
        _reading.now = self
        return self

    def __exit__(self, *error: object) -> None:
        _reading.now = None

    def __call__(self, kind: bytes, data: bytes, channel: str) -> Any:
        """The value of (type, bytes). Errors of decoding propagate."""
        self.channel = channel
        return self._loads((unquote(kind), data))


def _say_what_is_read(record: logging.LogRecord) -> bool:
    """Add thread and channel to what the serialiser logs, e.g. of a class that was renamed since."""
    now = getattr(_reading, "now", None)
    if now is not None:
        record.msg = f"{record.getMessage()} [thread {now.thread_id!r}, channel {now.channel!r}]"
        record.args = ()
    return True


logging.getLogger("langgraph.checkpoint.serde.jsonplus").addFilter(_say_what_is_read)


def same(stored: Any, wanted: Any) -> bool:
    """Equality for filters: as Python's, but `True` and `1` are kept apart, at any depth."""
    if isinstance(stored, bool) or isinstance(wanted, bool):
        return stored is wanted
    if isinstance(stored, Mapping) and isinstance(wanted, Mapping):
        return stored.keys() == wanted.keys() and all(same(v, wanted[k]) for k, v in stored.items())
    if isinstance(stored, (list, tuple)) and isinstance(wanted, (list, tuple)):
        return len(stored) == len(wanted) and all(map(same, stored, wanted))
    return bool(stored == wanted)
