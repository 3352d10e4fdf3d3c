"""The message classes of langchain-core: their state to bytes and back without pydantic.

What a class is made of is read from the class itself when it is first met. Where anything about it is not known
here (an annotation, a validator, a serialiser, a configuration), or where samples do not come out as the parent
serialiser makes them, the class is left to the parent; so is every message with a state that is out of the ordinary.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping
from typing import Any

import ormsgpack
from langgraph.checkpoint.serde import _msgpack as allowlist
from langgraph.checkpoint.serde import jsonplus
from pydantic import BaseModel

from redis_ckpt._shapes import Kind, UnknownShapeError, compile_function, compile_into, kind_of, samples_of

Check = Callable[[Mapping[str, Any]], bool]

PYDANTIC_V2 = jsonplus.EXT_PYDANTIC_V2
UNPACK_OPTION = ormsgpack.OPT_NON_STR_KEYS
PACKAGE = "langchain_core.messages."
METHOD = "model_validate_json"
# As the parent packs what msgpack has of its own. Everything else is refused: subclasses, keys that are no strings,
# lone surrogates. What pydantic makes of them is not known here, and asking is quicker in C.
_PACK_OPTION = (
    ormsgpack.OPT_PASSTHROUGH_SUBCLASS
    | ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_UUID
)
# So much of a content is looked up at once: the head, the number of fields and the name of the first, which are the
# same in all messages of a class.
START_BYTES = 47
MAX_STARTS = 256
DAMAGED = None  # what the parent makes of a message that cannot be unpacked
HEAP_TYPE = 1 << 9  # in the flags of a class that was made at run time: Py_TPFLAGS_HEAPTYPE
_CONFIG = {"extra": "allow"}

_packb, _unpackb = ormsgpack.packb, ormsgpack.unpackb


def _calls_are_settled(state: Mapping[str, Any]) -> bool:
    """Every tool call is complete, and none is left to be parsed from the provider's own form."""
    calls, invalid = state["tool_calls"], state["invalid_tool_calls"]
    if not calls and not invalid:
        return not state["additional_kwargs"].get("tool_calls")
    for call in calls:
        if len(call) != 4 or "type" not in call:
            return False
    return not invalid or all(len(call) == 5 and "index" not in call and "extras" not in call for call in invalid)


def _has_no_calls(state: Mapping[str, Any]) -> bool:
    return not (state["tool_calls"] or state["invalid_tool_calls"] or state["tool_call_chunks"])


def _is_not_last(state: Mapping[str, Any]) -> bool:
    return state["chunk_position"] is None


def _is_empty(state: Mapping[str, Any]) -> bool:
    content = state["content"]
    return type(content) is str and not content


def _always(state: Mapping[str, Any]) -> bool:
    return True


# The validators of messages by name: when each leaves a state that fits as it is.
_VALIDATORS: dict[str, Check] = {
    "_backwards_compat_tool_calls": _calls_are_settled,
    "init_tool_calls": _has_no_calls,
    "init_server_tool_calls": _is_not_last,
    "coerce_args": _always,
}
# The classes with an `__init__` that does more than to pass on: when it leaves the state as it is.
_CONSTRUCTORS: dict[str, Check] = {"RemoveMessage": _is_empty}

# What a field must not have, and the only metadata it may have: a number becomes a string, a string stays.
_FIELD_QUIRKS = ("alias", "validation_alias", "serialization_alias", "discriminator", "exclude", "exclude_if")
_NUMBERS_TO_STRINGS = {"coerce_numbers_to_str": True}

# The descriptors of the four slots of a model: calling one takes half the time of `object.__setattr__`.
_SLOTS = {
    "set_state": BaseModel.__dict__["__dict__"].__set__,
    "set_names": BaseModel.__dict__["__pydantic_fields_set__"].__set__,
    "set_extra": BaseModel.__dict__["__pydantic_extra__"].__set__,
    "set_private": BaseModel.__dict__["__pydantic_private__"].__set__,
}
_PACK = ("def function(message):", " state = message.__dict__")
_PACKED = (
    "if message.__pydantic_extra__: return None",
    # without a function to call for what msgpack has nothing of its own for: then only the parent knows
    f"return Ext({PYDANTIC_V2}, packb((module, name, state, {METHOD!r}), option={_PACK_OPTION}))",
)
_RESTORE = ("def function(state):",)
_MADE = (
    "if home.get(name) is not cls: return None",  # it has been replaced since
    "message = new(cls)",
    "set_state(message, {state})",
    "set_names(message, fields.copy())",
    "set_extra(message, {})",
    "set_private(message, None)",
    "return message",
)
_RESTORED = ("if type(state) is not dict: return None", *_MADE)


class Message:
    """What is known of one class of messages.

    Attributes:
        pack: The msgpack extension of a message; None where only the parent knows it.
        restore: The message of an unpacked state, which it takes over; None where it has to be constructed.
        made_of: The message of a state like those that `restore` takes, which it takes over; None where it cannot.
        packs: Whether `pack` does as the parent.
        reads: Whether `restore` and `construct` do.
    """

    def __init__(self, cls: type[BaseModel], kinds: Mapping[str, Kind], settled: Check | None) -> None:
        self._cls: Any = cls
        self._module, self._name = cls.__module__, cls.__name__
        self._samples = tuple(samples_of(kinds, kinds, False))
        names = {"packb": _packb, "Ext": ormsgpack.Ext, "module": self._module, "name": self._name}
        self.pack = compile_function(kinds, _PACK, _PACKED, validates=False, names=names)
        self.packs = self._packs_as_the_parent()
        names |= {"cls": cls, "home": vars(importlib.import_module(self._module)), "new": object.__new__}
        names |= {"fields": set(kinds), "settled": settled, **_SLOTS}
        compile_into(names, "def made_of(state):", *(f" {line.replace('{state}', 'state')}" for line in _MADE))
        self.made_of: Any = names["made_of"]
        guard = () if settled is _always else ("if not settled(state): return None",)
        self.restore: Callable[[Any], Any] = _nothing
        if settled is not None:
            self.restore = compile_function(kinds, _RESTORE, (*guard, *_RESTORED), validates=True, names=names)
        self.reads = self._reads_as_the_parent()
        if not self.reads:
            self.restore = _nothing
            self.reads = self._reads_as_the_parent()

    @property
    def restores(self) -> bool:
        """Whether there are messages that are restored, and need not be constructed."""
        return self.restore is not _nothing

    def construct(self, state: Any) -> Any:
        """The message of an unpacked state that cannot be restored."""
        # As the parent does, step by step. It cannot be asked to: what is nested would be built a second time.
        try:
            cls = getattr(importlib.import_module(self._module), self._name)
            try:
                return cls(**state)
            except Exception:
                return cls.model_construct(**state)
        except Exception:
            return state

    def _packs_as_the_parent(self) -> bool:
        for state in self._samples:
            message = self._cls.model_construct(**state)
            for order in (dict, _reversed):
                _SLOTS["set_state"](message, order(message.__dict__))
                packed = self.pack(message)
                if packed is not None:
                    theirs = jsonplus._msgpack_default(message)
                    if _packb(packed) != _packb(theirs):
                        return False
        return True

    def _reads_as_the_parent(self) -> bool:
        parent = jsonplus._create_msgpack_ext_hook(None)
        for state in (*self._samples, {}, None):
            payload = _packb((self._module, self._name, state, METHOD), option=_PACK_OPTION)
            theirs = parent(PYDANTIC_V2, payload)
            unpacked = _unpackb(payload, option=UNPACK_OPTION)[2]
            restored = self.restore(unpacked)
            if not _same(restored if restored is not None else self.construct(unpacked), theirs):
                return False
            if parent(PYDANTIC_V2, payload[:-1]) is not DAMAGED:
                return False
        return True


def _nothing(value: Any) -> None:
    """What cannot be packed or restored."""


def _reversed(state: dict[str, Any]) -> dict[str, Any]:
    return dict(reversed(state.items()))


def _same(ours: Any, theirs: Any) -> bool:
    """Equal, of equal types, in the same order, all the way down."""
    if type(ours) is not type(theirs):
        return False
    if isinstance(ours, BaseModel):
        return (
            ours.__pydantic_fields_set__ == theirs.__pydantic_fields_set__
            and ours.__pydantic_private__ is theirs.__pydantic_private__ is None
            and _same(ours.__pydantic_extra__, theirs.__pydantic_extra__)
            and _same(ours.__dict__, theirs.__dict__)
        )
    if isinstance(ours, dict):
        return _same(list(ours), list(theirs)) and _same(list(ours.values()), list(theirs.values()))
    if isinstance(ours, list):
        return len(ours) == len(theirs) and all(map(_same, ours, theirs))
    return bool(ours == theirs)


def _kinds(cls: type[BaseModel], extra: bool) -> dict[str, Kind]:
    """The fields of a class.

    Raises:
        UnknownShapeError: Dumping it, or one of its fields, is not what is known here.
    """
    infos = cls.__pydantic_decorators__
    schema: Any = cls.__get_pydantic_core_schema__
    if (
        cls.model_config != _CONFIG
        or cls.model_dump is not BaseModel.model_dump
        or schema.__func__ is not vars(BaseModel)["__get_pydantic_core_schema__"].__func__
        or infos.field_serializers
        or infos.model_serializers
        or infos.computed_fields
    ):
        raise UnknownShapeError(cls.__name__)
    kinds: dict[str, Kind] = {}
    for name, field in cls.model_fields.items():
        odd = any(getattr(field, quirk, None) is not None for quirk in _FIELD_QUIRKS)
        if odd or any(vars(entry) != _NUMBERS_TO_STRINGS for entry in field.metadata):
            raise UnknownShapeError(f"{cls.__name__}.{name}")
        kinds[name] = kind_of(field.annotation, extra)
    return kinds


def _settled(cls: type[BaseModel]) -> Check | None:
    """When all that runs in the construction of a message leaves a state as it is; None where that is not known."""
    infos = cls.__pydantic_decorators__
    checks = {_VALIDATORS.get(name) for name in infos.model_validators} - {_always}
    if cls.__name__ in _CONSTRUCTORS:
        checks.add(_CONSTRUCTORS[cls.__name__])
    if (
        infos.validators
        or infos.field_validators
        or infos.root_validators
        or cls.__private_attributes__
        or cls.__pydantic_post_init__
        or cls.__new__ is not object.__new__
        or None in checks
    ):
        return None
    known = tuple(check for check in checks if check is not None)
    if len(known) < 2:
        return known[0] if known else _always
    return lambda state: all(check(state) for check in known)


@functools.cache
def message_of(cls: type[BaseModel]) -> Message | None:
    """What is known of a class; None where it is left to the parent."""
    best = None
    try:
        settled = _settled(cls)
        for extra in (True, False):  # whether the mappings in a message keep keys that nobody declared
            kinds = _kinds(cls, extra)
            message = Message(cls, kinds, settled)
            if message.packs and message.reads:
                if message.restores or settled is None:
                    return message
                best = best or message
    except Exception:  # whatever a class may raise that is not as those of today
        return None
    return best


class _Packers(dict[type, "Callable[[Any], Any] | None"]):
    """How the classes that were met in values are packed; None: by the parent."""

    def of(self, cls: type) -> Callable[[Any], Any] | None:
        """The function for a class, which is remembered if it is one of messages, or one that never goes away."""
        if BaseModel not in cls.__mro__ or (cls.__module__, cls.__name__) not in NAMES:
            if not cls.__flags__ & HEAP_TYPE:
                self[cls] = None
            return None
        message = message_of(cls)
        self[cls] = pack = message.pack if message else _nothing
        return pack


class _Messages(dict[bytes, "Message | None"]):
    """The classes that were met in bytes, by how the content of an extension starts; None: left to the parent."""

    def of(self, content: bytes) -> Message | None:
        """The class that is named in the head of the content: an array of four, module, name.

        Raises:
            IndexError: It is too short to have one.
        """
        # A string of fewer than 32 bytes has its length in its first byte, one of fewer than 256 in its second.
        # Of a content with another head these may be any bytes.
        length = content[1]
        at = length - 158 if length < 0xC0 else content[2] + 3
        head = content[: at + 1 + (content[at] & 31)]
        name = _HEADS.get(head)
        message = _message_named(*name) if name else None
        if message is not None and len(head) <= START_BYTES and len(self) < MAX_STARTS:
            self[content[:START_BYTES]] = message
        return message


@functools.cache
def _message_named(module: str, name: str) -> Message | None:
    try:
        cls = getattr(importlib.import_module(module), name)
        genuine = (cls.__module__, cls.__name__) == (module, name)
    except Exception:  # this langchain-core has no such class
        return None
    return message_of(cls) if genuine else None


# The allowlist has these always, so there is nothing to ask it.
NAMES = frozenset(name for name in allowlist.SAFE_MSGPACK_TYPES if name[0].startswith(PACKAGE))
_HEADS = {b"\x94" + _packb(module) + _packb(name): (module, name) for module, name in NAMES}

# Filled as classes are met; a race writes the same twice.
PACKERS = _Packers()
MESSAGES = _Messages()
