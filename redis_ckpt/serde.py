"""The serialiser that both savers use by themselves: the one of LangGraph, with the same bytes, only faster."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import ormsgpack
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

if TYPE_CHECKING:
    from redis_ckpt._copies import Copies

try:
    from redis_ckpt import _copies
    from redis_ckpt._messages import UNPACK_OPTION
    from redis_ckpt._packing import PACK_OPTION, default, faster, is_as_known, with_copies

    _KNOWN = is_as_known()
except (AttributeError, ImportError):  # a langgraph-checkpoint whose inner parts are others
    _KNOWN = False

# Exactly these types are no None and no bytes; of others the parent's own tests tell.
_PACKED = frozenset({str, int, float, bool, dict, list, tuple})

_packb, _unpackb = ormsgpack.packb, ormsgpack.unpackb


def new_copies(most_bytes: float) -> Copies | None:
    """A memory of messages for `FastSerializer.loads_with`; None where messages are left to LangGraph."""
    return _copies.Copies(most_bytes) if _KNOWN else None


def checked_serde(serde: SerializerProtocol) -> SerializerProtocol:
    """A serialiser that was given.

    Raises:
        TypeError: It is none; said before it is blamed on a value.
    """
    has = [callable(getattr(serde, name, None)) for name in ("dumps_typed", "loads_typed", "dumps", "loads")]
    if isinstance(serde, type) or not (all(has[:2]) or all(has[2:])):
        raise TypeError(f"serde must be a serialiser, such as FastSerializer(), not {serde!r}")
    return serde


class FastSerializer(JsonPlusSerializer):
    """LangGraph's `JsonPlusSerializer`: the same bytes and equal objects, for messages in less than half of the time.

    Messages of langchain-core are packed from their own fields and restored without being validated again, where the
    two are known to be the same; everything else takes the parent's path. Allowlists, strict mode, warnings, events
    and errors are the parent's. It takes the parent's arguments, and instances may be shared by threads.

    With an `__unpack_ext_hook__` of your own it only packs fast. With a langgraph-checkpoint that works in another
    way than is known here, it is no faster than its parent.

    Cost: of a message of 650 bytes, 1.5 to 2.5 us to pack and 3 to 6 us to restore, where the parent takes 3 to 5 us
    and 8 to 16 us (Python 3.11, 2026-11-30). The first message of a class costs some milliseconds more.

    Source: `langgraph.checkpoint.serde.jsonplus`, versions 4.1 to 4.3 of langgraph-checkpoint.
    """

    @property
    def _unpack_ext_hook(self) -> Callable[[int, bytes], Any]:
        return self._hook

    # The parent sets it when it is made, and on every copy with another allowlist.
    @_unpack_ext_hook.setter
    def _unpack_ext_hook(self, hook: Callable[[int, bytes], Any]) -> None:
        self._parents_hook = hook
        self._hook = faster(hook) if _KNOWN else hook

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """The kind of the bytes and the bytes; see the parent.

        Raises:
            ormsgpack.MsgpackEncodeError: Part of the value cannot be serialised, and `pickle_fallback` is off.
        """
        if not _KNOWN:
            return super().dumps_typed(obj)
        if type(obj) not in _PACKED:
            if obj is None:
                return "null", b""
            if isinstance(obj, bytes):
                return "bytes", obj
            if isinstance(obj, bytearray):
                return "bytearray", cast(bytes, obj)
        try:
            return "msgpack", _packb(obj, default=default, option=PACK_OPTION)
        except ormsgpack.MsgpackEncodeError:
            if self.pickle_fallback:
                return "pickle", pickle.dumps(obj)
            raise

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """The value of what `dumps_typed` gave; see the parent.

        Raises:
            NotImplementedError: The kind of the bytes is unknown.
            ormsgpack.MsgpackDecodeError: They are damaged.
        """
        kind, content = data
        if kind == "msgpack" and _KNOWN:
            return _unpackb(content, ext_hook=self._hook, option=UNPACK_OPTION)
        if kind == "null":
            return None
        if kind == "bytes":
            return content
        return super().loads_typed((kind, content))

    def loads_with(self, copies: Copies) -> Callable[[tuple[str, bytes]], Any]:
        """`loads_typed`, for a time: messages that come again are copied, see `_copies`. Both give the same."""
        if self._hook is self._parents_hook or type(self).loads_typed is not FastSerializer.loads_typed:
            return self.loads_typed
        hook, other = with_copies(self._parents_hook, self._hook, copies), self.loads_typed

        def loads(data: tuple[str, bytes]) -> Any:
            kind, content = data
            return _unpackb(content, ext_hook=hook, option=UNPACK_OPTION) if kind == "msgpack" else other(data)

        return loads
