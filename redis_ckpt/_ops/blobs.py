"""Values on their way to the server and back: whole, as deltas, or not at all where they are known already."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from redis_ckpt import _codec, _delta
from redis_ckpt._config import Target
from redis_ckpt._keys import US, channel_of, quote
from redis_ckpt._known import LEAST_BYTES, Cache, Known, Link, delta_for, rebuilt, whole
from redis_ckpt._shapes import IMMUTABLE
from redis_ckpt._versions import is_unique

_PLAIN = _codec.WHOLE + b"msgpack" + US  # how nearly all records begin
SKIPPED = b""  # what scripts answer in place of a blob that the caller has said to know


class Draft:
    """The new values of a put: their records, and what will be known once they are stored."""

    def __init__(self, cache: Cache, target: Target, values: Mapping[bytes, _codec.Value]) -> None:
        self._cache, self._target, self._values = cache, target, values
        self._known: dict[str, Known | None] = {}  # None: nothing any more
        self._before: Mapping[str, Known] | None = None
        self.records: dict[bytes, bytes] = {}
        for ref, value in values.items():
            if not _is_worth_knowing(value.version, value.data):
                self.records[ref] = value.record
                if self.knows(ref, value.channel):  # a version that comes again, with other bytes
                    self._known[value.channel] = None
                continue
            known = self._known_before(value.channel)
            made = known and delta_for(known, value.kind, value.data, value.version)
            if made is None:
                self.send_whole(ref)
            else:
                self.records[ref], self._known[value.channel] = made

    def _known_before(self, channel: str) -> Known | None:
        if self._before is None:
            self._before = self._cache.get(self._target.thread_id, self._target.checkpoint_ns)
        return self._before.get(channel)

    def knows(self, ref: bytes, channel: str) -> bool:
        """Whether the bytes of a value that is not new are known."""
        known = self._known_before(channel)
        return known is not None and ref.partition(US)[2] in known.versions

    def record_of(self, ref: bytes, channel: str) -> bytes | None:
        """The record, as a whole, of a value that is not new; None if its bytes are not known."""
        known, version = self._known_before(channel), ref.partition(US)[2]
        found = None if known is None else known.at(version)
        return None if found is None else _codec.Value(channel, version, found.kind, found.data).record

    def send_whole(self, ref: bytes) -> bool:
        """Take back the delta of a value, whose base is not there; False if it is none of the new values."""
        value = self._values.get(ref)
        if value is None:
            return False
        record = self.records[ref] = value.record
        if _is_worth_knowing(value.version, value.data):
            self._known[value.channel] = whole(value.kind, value.data, value.version, len(record))
        return True

    def remember(self) -> None:
        """Now that they are stored."""
        self._cache.put(self._target.thread_id, self._target.checkpoint_ns, self._known)


def _is_worth_knowing(version: bytes, data: bytes) -> bool:
    return len(data) >= LEAST_BYTES and is_unique(version)


class LostValuesError(Exception):
    """Values of a checkpoint that are not there, or not as they were.

    Attributes:
        what: What is wrong with them, in the words of `DamagedCheckpointError`.
        channels: Whose they are.
    """

    def __init__(self, what: str, channels: Sequence[str]) -> None:
        super().__init__(what, channels)
        self.what, self.channels = what, channels


def known_refs(known: Mapping[str, Known]) -> list[bytes]:
    """The refs of the values that are here whole."""
    refs = []
    for channel, each in known.items():
        head = quote(channel) + US
        refs += [head + version for version in each.versions]
    return refs


class Blobs:
    """The values of one namespace in a reply, put together from whole ones, deltas, and what is known.

    Args:
        records: By ref; None where one is gone, SKIPPED where it is known.
        thread_id: What is being read, for errors.
        known: What the caller has said to know, by channel.
        is_page: Whether several versions of a channel will be got, the newest first: then older ones are cut out of it.

    Attributes:
        found: Of the values that were got those that it pays to know, by channel.
    """

    def __init__(
        self,
        records: Mapping[bytes, bytes | None],
        thread_id: str,
        known: Mapping[str, Known] | None = None,
        is_page: bool = False,
    ) -> None:
        self._records = records
        self._known = known or {}
        self._thread_id = thread_id
        self._is_page = is_page
        self._shared: dict[bytes, Any] = {}  # values of a page that cannot be changed: most are met in it many times
        self._built: dict[bytes, Known] = {}  # each a version of this channel, or one that begins with it
        self.found: dict[str, Known] = {}

    def values(self, refs: Iterable[bytes], value_of: _codec.Reader) -> dict[str, Any]:
        """The values of a checkpoint, by channel.

        Raises:
            LostValuesError: Some cannot be put together.
        """
        values: dict[str, Any] = {}
        lost: list[str] = []
        what, shared = "values are missing", self._shared
        for ref in refs:
            channel = value_of.channel = channel_of(ref)
            if ref in shared:
                values[channel] = shared[ref]
                continue
            try:
                found = self.get(ref, channel)
            except KeyError:
                lost.append(channel)
            except _delta.BrokenChainError as error:
                lost.append(channel)
                what = f"values are changed or missing ({error})"
            else:
                if found is not None:
                    value = values[channel] = value_of(*found, channel)
                    if self._is_page and type(value) in IMMUTABLE:
                        shared[ref] = value
        if lost:
            raise LostValuesError(what, lost)
        return values

    def get(self, ref: bytes, channel: str) -> tuple[bytes, bytes] | None:
        """The serialiser's (type, bytes) of a value, the type quoted; None for a version without a value.

        Raises:
            KeyError: It is gone, or what it is a delta of.
            BrokenChainError: It is a delta of something else.
        """
        record = self._records[ref]
        if record is None:
            raise KeyError(ref)
        if record.startswith(_PLAIN):
            found: tuple[bytes, bytes] | None = (b"msgpack", record[len(_PLAIN) :])
        elif record == SKIPPED or record[:2] == _codec.DELTA:
            built = self.found[channel] = self._at_end_of_chain(ref, channel)
            return built.kind, built.data
        else:
            found = _codec.decode_whole(record, channel, self._thread_id)
        if found is not None and len(found[1]) >= LEAST_BYTES and not self._is_page:
            version = ref.partition(US)[2]
            if is_unique(version):
                self.found[channel] = whole(*found, version, len(record))
        return found

    def _at_end_of_chain(self, ref: bytes, channel: str) -> Known:
        chain: list[Link] = []
        head, _, version = ref.partition(US)
        while (base := self._beginning(head + US + version, channel)) is None:
            record = self._records[head + US + version] or b""
            delta = _delta.decode(record)
            chain.append(Link(version, len(record), delta))
            if len(chain) > _delta.MOST_LINKS:
                raise _delta.BrokenChainError("a chain of deltas has no end")
            version = delta.base
        if not chain:
            return base
        built = rebuilt(base, chain[::-1], self._is_page)
        if self._is_page:
            self._built.update((head + US + earlier, built) for earlier in built.versions)
        return built

    def _beginning(self, ref: bytes, channel: str) -> Known | None:
        """What a chain can begin with: a value that was built already, or that is known, or that is whole."""
        record, version = self._records.get(ref), ref.partition(US)[2]
        if ref in self._built:
            return self._built[ref].at(version)
        if record and record[:2] == _codec.DELTA:
            return None
        if record:
            found = _codec.decode_whole(record, channel, self._thread_id)
            if found is None:
                raise _delta.BrokenChainError("a base has no value")
            return whole(*found, version, len(record))
        base = self._known[channel].at(version) if channel in self._known else None
        if base is None:
            raise KeyError(ref)
        return base
