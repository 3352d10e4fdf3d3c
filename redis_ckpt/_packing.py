"""The two functions that the parent serialiser has ormsgpack call, made to know messages.

Where a value is no message they are the parent's own, which call themselves for what is nested in it: they are bound
so that they call these instead.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

import ormsgpack
from langgraph.checkpoint.serde import jsonplus
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from redis_ckpt._copies import Copies
from redis_ckpt._messages import DAMAGED, MESSAGES, PACKERS, PYDANTIC_V2, START_BYTES, UNPACK_OPTION

Hook = Callable[[int, bytes], Any]

PACK_OPTION = jsonplus._option

_UNMET: Any = object()
_packb, _unpackb = ormsgpack.packb, ormsgpack.unpackb


def default(value: Any) -> Any:
    """What stands in the bytes for a value that msgpack has nothing of its own for."""
    kind = type(value)
    pack = PACKERS.get(kind, _UNMET)
    if pack is _UNMET:
        pack = PACKERS.of(kind)
    if pack is not None:
        packed = pack(value)
        if packed is not None:
            return packed
    return _parents_default(value)


def _pack(value: Any) -> bytes:
    return _packb(value, default=default, option=PACK_OPTION)


_parents_default = FunctionType(
    jsonplus._msgpack_default.__code__, {**vars(jsonplus), "_msgpack_enc": _pack}, "_parents_default"
)


def faster(parent: Hook) -> Hook:
    """A hook that knows messages around one that the parent made; one that somebody else made, as it is."""
    function: Any = parent
    code: Any = getattr(parent, "__code__", None)
    if code not in jsonplus._create_msgpack_ext_hook.__code__.co_consts or "ext_hook" not in code.co_freevars:
        return parent
    hook = _hook_around(parent)
    # the name by which the parent's function calls itself
    function.__closure__[code.co_freevars.index("ext_hook")].cell_contents = hook
    return hook


def with_copies(parent: Hook, hook: Hook, copies: Copies) -> Hook:
    """What `faster` made of a parent's hook, but messages that were met before are copied."""
    return _hook_around(parent, hook, copies)


def _hook_around(parent: Hook, plain: Hook | None = None, copies: Copies | None = None) -> Hook:
    messages = MESSAGES
    nested_values = 0

    def hook(code: int, data: bytes) -> Any:
        if code != PYDANTIC_V2:
            return parent(code, data)
        if copies is not None and (copy := copies.copy_of(data)) is not None:
            return copy
        try:
            message = messages.get(data[:START_BYTES]) or messages.of(data)
        except IndexError:  # damaged bytes: the parent says what becomes of them
            message = None
        if message is None:
            return parent(code, data)
        before = nested_values
        try:
            state = _unpackb(data, ext_hook=inner, option=UNPACK_OPTION)[2]
        except Exception:
            return DAMAGED  # the parent cannot be asked: what is nested would be built a second time
        restored = message.restore(state)
        if restored is None:
            return message.construct(state)
        # What is nested may have been refused, which another reader would not, and is said each time.
        if copies is not None and nested_values == before:
            copies.learn(data, message, restored.__dict__)
        return restored

    def counted(code: int, data: bytes) -> Any:
        nonlocal nested_values
        nested_values += 1
        return plain(code, data) if plain is not None else None

    inner = hook if plain is None else counted
    return hook


def is_as_known() -> bool:
    """Whether the parent of this langgraph-checkpoint does what is known here of it, by a sample."""
    parent = JsonPlusSerializer(allowed_msgpack_modules=None)
    sample = {"text": ["é", 1, (2.5, None), True], "bytes": {1: b"x"}, "set": {3}}
    dumped = parent.dumps_typed(sample)
    if dumped != ("msgpack", _pack(sample)) or parent.loads_typed(("null", b"")) is not None:
        return False
    hook = faster(parent._unpack_ext_hook)
    loaded = _unpackb(dumped[1], ext_hook=hook, option=UNPACK_OPTION)
    return hook is not parent._unpack_ext_hook and bool(loaded == parent.loads_typed(dumped))
