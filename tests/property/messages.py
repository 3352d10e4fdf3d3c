"""Random messages, whole and damaged, and the values that hold them."""

from __future__ import annotations

import re
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from ipaddress import IPv4Address
from pathlib import PurePosixPath
from typing import Any, NamedTuple
from uuid import UUID

import langchain_core.messages as lc
import numpy as np
from hypothesis import strategies as st
from langchain_core.documents import Document
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.types import Interrupt, Overwrite, Send
from pydantic import BaseModel, SecretStr


class Colour(Enum):
    RED = "red"


class Named(str, Enum):
    AI = "ai"


class Level(IntEnum):
    HIGH = 3


class Point(NamedTuple):
    x: int
    y: Any


class Text(str):
    pass


class Number(int):
    pass


class Items(list[Any]):
    pass


class Opaque:
    """Nothing can pack it, but pickle."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Opaque)

    __hash__ = object.__hash__


@dataclass
class State:
    messages: list[Any] = field(default_factory=list)
    other: Any = None


class Model(BaseModel):
    a: int = 1
    b: Any = None


class MyMessage(lc.HumanMessage):
    mood: str = "fine"


class MyAIMessage(lc.AIMessage):
    pass


CLASSES: tuple[type[lc.BaseMessage], ...] = (
    lc.AIMessage,
    lc.HumanMessage,
    lc.ToolMessage,
    lc.SystemMessage,
    lc.AIMessageChunk,
    lc.RemoveMessage,
    lc.ChatMessage,
    lc.FunctionMessage,
    lc.HumanMessageChunk,
    lc.ToolMessageChunk,
    lc.SystemMessageChunk,
    lc.ChatMessageChunk,
    lc.FunctionMessageChunk,
    MyMessage,
    MyAIMessage,
)

text = st.text(st.characters(min_codepoint=1, max_codepoint=0x1F600), max_size=8)
surrogates = st.sampled_from(["\ud800", "a\udfffb"])
leaves = st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(), text, st.binary(max_size=4))
odd = st.deferred(
    lambda: st.one_of(
        surrogates,
        st.sampled_from(ODD).map(lambda make: make()),
        messages,
    )
)
# What is not JSON comes of its own functions, so that no two examples share a list.
ODD: tuple[Callable[[], Any], ...] = (
    lambda: Decimal("1.10"),
    lambda: datetime(2026, 1, 1, tzinfo=timezone.utc),
    lambda: date(2026, 1, 1),
    lambda: time(1, 2, 3),
    lambda: timedelta(seconds=1.5),
    lambda: UUID(int=5),
    lambda: {1, 2},
    lambda: frozenset({"a"}),
    lambda: deque([1, "x"]),
    lambda: PurePosixPath("/a/b"),
    lambda: re.compile("a+", re.I),
    lambda: IPv4Address("10.0.0.1"),
    lambda: Colour.RED,
    lambda: Named.AI,
    lambda: Level.HIGH,
    lambda: Point(1, [2]),
    lambda: Text("ai"),
    lambda: Number(7),
    lambda: Items([1]),
    lambda: OrderedDict(b=1, a=2),
    lambda: defaultdict(list, {"k": [1]}),
    lambda: State([1], {"x": 1}),
    lambda: Model(a=2, b={"y": (1,)}),
    lambda: Document("d", metadata={"n": 1}),
    lambda: SecretStr("s"),
    lambda: np.float64(2.5),
    lambda: np.int64(3),
    lambda: np.arange(6).reshape(2, 3),
    lambda: bytearray(b"ab"),
    lambda: ("t", 1),
    lambda: 2**70,
    Opaque,
    lambda: ValueError("v"),
    lambda: Send("node", {"k": 1}),
    lambda: Interrupt("q", id="i"),
)
keys = st.one_of(text, text, text, st.integers(0, 9), st.sampled_from([None, 1.5, (1, "k"), Colour.RED, Text("name")]))


def _nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    lists = st.lists(inner, max_size=3)
    return st.one_of(lists, lists.map(tuple), st.dictionaries(text, inner, max_size=3), st.dictionaries(keys, inner))


json = st.recursive(
    leaves, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(text, inner, max_size=3)), max_leaves=6
)
anything = st.recursive(st.one_of(leaves, leaves, leaves, odd), _nested, max_leaves=6)
# Mostly JSON: then a message is the fast kind.
values = st.one_of(json, json, json, anything)
mappings = st.one_of(st.just({}), st.dictionaries(text, values, max_size=3), st.dictionaries(keys, values, max_size=2))
maybe_text = st.one_of(st.none(), text)


def _mostly(usual: st.SearchStrategy[Any], *unusual: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.integers(0, 9).flatmap(lambda n: usual if n or not unusual else st.one_of(*unusual))


def _fields(required: dict[str, Any], optional: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """A mapping in a random order of its keys, now and then with others or without one."""
    whole = st.fixed_dictionaries(required, optional=optional)
    shuffled = whole.flatmap(lambda d: st.permutations(list(d.items()))).map(dict)
    others = st.tuples(shuffled, st.dictionaries(keys, values, min_size=1, max_size=2)).map(lambda p: {**p[0], **p[1]})
    gaps = st.fixed_dictionaries({}, optional={**required, **optional})
    return _mostly(st.one_of(whole, whole, shuffled), others, gaps)


number = _mostly(st.integers(0, 9), st.just(1.0), st.just(True), odd)
args = _mostly(st.dictionaries(text, values, max_size=2), mappings, text)
tool_calls = _fields(
    {"name": _mostly(text, odd), "args": args, "id": maybe_text},
    {"type": _mostly(st.just("tool_call"), text), "extras": mappings},
) | st.fixed_dictionaries(
    {"name": text, "args": st.dictionaries(text, json, max_size=2), "id": maybe_text, "type": st.just("tool_call")}
)
invalid_calls = st.one_of(
    st.fixed_dictionaries(
        {
            "type": st.just("invalid_tool_call"),
            **{name: _mostly(maybe_text, odd) for name in ("id", "name", "args", "error")},
        },
        optional={"index": number, "extras": mappings},
    ),
    _fields(dict.fromkeys(("name", "args", "id", "error"), maybe_text), {"type": st.just("invalid_tool_call")}),
)
call_chunks = _fields(
    {"name": maybe_text, "args": _mostly(st.sampled_from(["{", '{"a": 1}', "[1]", ""]), maybe_text), "id": maybe_text},
    {"index": number, "type": st.just("tool_call_chunk")},
)
input_details = _fields({}, {"audio": number, "cache_creation": number, "cache_read": number})
usage = _fields(
    dict.fromkeys(("input_tokens", "output_tokens", "total_tokens"), number),
    {
        "input_token_details": input_details,
        "output_token_details": _fields({}, {"audio": number, "reasoning": number, "accepted": number}),
    },
)
blocks = _fields({"type": st.sampled_from(["text", "server_tool_call_chunk", "tool_call"])}, {"text": text, "id": text})
content = _mostly(text | text | st.lists(_mostly(text | blocks, values), max_size=3), values, surrogates)
raw_calls = st.lists(
    st.fixed_dictionaries(
        {
            "id": text,
            "function": st.fixed_dictionaries({"name": text, "arguments": st.sampled_from(["{}", '{"a":1}', "{"])}),
        }
    ),
    max_size=2,
)
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "content": content,
    "additional_kwargs": _mostly(mappings, st.fixed_dictionaries({"tool_calls": raw_calls}), odd),
    "response_metadata": _mostly(mappings, st.just({"output_version": "v1"}), odd),
    "name": _mostly(maybe_text, odd),
    "id": _mostly(maybe_text, st.integers(0, 9), odd),
    "tool_calls": _mostly(st.lists(tool_calls, max_size=2), odd),
    "invalid_tool_calls": _mostly(st.lists(invalid_calls, max_size=2), odd),
    "usage_metadata": _mostly(st.none() | usage, odd),
    "tool_call_chunks": _mostly(st.just([]), st.lists(call_chunks, max_size=2)),
    "chunk_position": _mostly(st.none(), st.just("last"), odd),
    "tool_call_id": _mostly(text, st.integers(0, 9), st.just(UUID(int=1))),
    "artifact": values,
    "status": _mostly(st.sampled_from(["success", "error"]), text),
    "role": _mostly(text, odd),
    "mood": text,
}
ALWAYS = {"content", "tool_call_id", "role", "id"}
TAKEN = {"self", "cls", "_fields_set"}  # by the functions that make a message


@st.composite
def _messages(draw: st.DrawFn) -> Any:
    cls = draw(st.one_of(st.sampled_from(CLASSES[:4]), st.sampled_from(CLASSES)))
    known = {name: FIELDS[name] for name in cls.model_fields if name in FIELDS}
    if cls is lc.RemoveMessage and draw(st.integers(0, 9)):
        del known["content"]
    always = {name: strategy for name, strategy in known.items() if name in ALWAYS}
    if cls is lc.FunctionMessage or cls is lc.FunctionMessageChunk:
        always["name"] = text
    often = {name: strategy for name, strategy in known.items() if name not in always}
    kwargs = draw(st.fixed_dictionaries(always, optional=often))
    if not draw(st.integers(0, 9)):
        kwargs |= draw(st.dictionaries(text.filter(lambda name: name not in TAKEN), values, max_size=2))
    try:
        message: Any = cls(**kwargs)
    except Exception:  # not what validation takes
        message = cls.model_construct(**kwargs)
    if not draw(st.integers(0, 5)):
        _damage(draw, message, known)
    return message


def _damage(draw: st.DrawFn, message: Any, known: dict[str, st.SearchStrategy[Any]]) -> None:
    """What no validation sees: changes of a message after it was made."""
    state = message.__dict__
    kind = draw(st.sampled_from(["change", "change", "change", "move", "lose", "gain", "extra", "unset", "type"]))
    if kind == "change":
        name = draw(st.sampled_from(sorted(known)))
        state[name] = draw(known[name] | values)
    elif kind == "move":
        moved = dict(draw(st.permutations(list(state.items()))))
        state.clear()
        state.update(moved)
    elif kind == "lose":
        del state[draw(st.sampled_from(sorted(state)))]
    elif kind == "gain":
        state[draw(text)] = draw(values)
    elif kind == "extra":
        object.__setattr__(message, "__pydantic_extra__", draw(st.none() | st.dictionaries(text, values, max_size=1)))
    elif kind == "unset":
        object.__setattr__(message, "__pydantic_fields_set__", set())
    else:
        state["type"] = draw(st.sampled_from(["ai", "human", Named.AI, Text("human"), 5]))


messages: st.SearchStrategy[Any] = _messages()
wrappers: tuple[Callable[[Any, Any], Any], ...] = (
    lambda m, v: m,
    lambda m, v: [m, v],
    lambda m, v: [v, m, m],
    lambda m, v: {"messages": [m], "v": v},
    lambda m, v: (m, {"k": v}),
    lambda m, v: State([m], v),
    lambda m, v: Send("node", {"messages": [m], "v": v}),
    lambda m, v: Interrupt([m, v], id="i"),
    lambda m, v: Overwrite([m]),
    lambda m, v: _DeltaSnapshot([m, v]),
    lambda m, v: Point(1, [m, v]),
    lambda m, v: deque([v, m]),
    lambda m, v: Model(b=[m, v]),
)
states = st.one_of(
    st.builds(lambda wrap, m, v: wrap(m, v), st.sampled_from(wrappers), messages, values),
    messages,
    st.lists(messages, max_size=4),
    values,
)
