"""The fast serialiser: what it does itself, and what it leaves to its parent."""

from __future__ import annotations

import importlib
import importlib.util
import json
import logging
import sys
import threading
from types import ModuleType
from typing import Any

import langchain_core.messages as lc
import ormsgpack
import pydantic
import pytest
from langchain_core.messages.human import HumanMessage
from langgraph.checkpoint.serde import jsonplus
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.types import Send
from pydantic import BaseModel

from redis_ckpt import _messages, _packing, serde
from redis_ckpt.serde import FastSerializer
from tests.property.messages import CLASSES, Model, Named, State
from tests.property.serialisers import alike, check_read, check_values, forget_classes, pair

CALL = {"name": "f", "args": {"x": [1]}, "id": "c", "type": "tool_call"}
USAGE = {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3, "input_token_details": {"cache_read": 1, "own": 2}}
CHAT = [
    lc.SystemMessage("be brief"),
    lc.HumanMessage("hi", id="1"),
    lc.HumanMessage([{"type": "text", "text": "é"}, "b"], name="n"),
    lc.AIMessage("", tool_calls=[CALL], usage_metadata=USAGE, response_metadata={"model_name": "m"}),
    lc.AIMessage("", invalid_tool_calls=[{"name": "f", "args": "{", "id": None, "error": "e"}]),
    lc.ToolMessage("r", tool_call_id="c", artifact={"k": [1, None]}, status="error"),
    lc.RemoveMessage(id="1"),
    lc.ChatMessage(content="c", role="r"),
    lc.FunctionMessage(content="c", name="f"),
    lc.AIMessageChunk(content="part"),
]
KNOWN = [cls for cls in CLASSES if (cls.__module__, cls.__name__) in _messages.NAMES]


@pytest.mark.parametrize("message", CHAT, ids=lambda m: type(m).__name__)
def test_a_message_is_packed_and_restored_without_pydantic(message: Any) -> None:
    cls: Any = type(message)
    known = _messages.message_of(cls)
    assert known is not None
    packed = ormsgpack.packb(known.pack(message))
    assert packed == JsonPlusSerializer().dumps_typed(message)[1]
    assert alike(known.restore(message.model_dump()), type(message)(**message.model_dump()))
    check_values(message, *pair())


RAW = {"tool_calls": [{"id": "c", "function": {"name": "f", "arguments": '{"x": 1}'}}]}
UNSETTLED = [
    lc.AIMessage.model_construct(content="", additional_kwargs=RAW),
    lc.AIMessageChunk.model_construct(content="", additional_kwargs=RAW),
    lc.AIMessage.model_construct(content="", tool_calls=[{"name": "f", "args": {}, "id": None}]),
    lc.AIMessage.model_construct(content="", tool_calls=[{**CALL, "extras": {}}]),
    lc.AIMessage.model_construct(content="", usage_metadata={**USAGE, "input_tokens": 1.0}),
    lc.AIMessage.model_construct(content="", usage_metadata=dict(reversed(USAGE.items()))),
    lc.AIMessageChunk(content="", tool_call_chunks=[{"name": "f", "args": "{", "id": "c", "index": 0}]),
    lc.AIMessageChunk(
        content=[{"type": "server_tool_call_chunk", "args": "{}"}],
        chunk_position="last",
        response_metadata={"output_version": "v1"},
    ),
    lc.AIMessage.model_construct(content="", type=Named.AI),
    lc.HumanMessage.model_construct(content=5),
    lc.HumanMessage.model_construct(content=["a", 5]),
    lc.RemoveMessage.model_construct(content="x", id="1"),
    lc.RemoveMessage.model_construct(content=[], id="1"),
    lc.ToolMessage.model_construct(content=("a",), tool_call_id=7),
    lc.HumanMessage("x", cls=1, more={"a": [1]}),
    object.__new__(lc.HumanMessage),
]


@pytest.mark.parametrize("message", UNSETTLED, ids=lambda m: type(m).__name__)
@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
def test_a_message_that_construction_would_change_is_constructed(message: Any) -> None:
    check_values([message], *pair(allowed_msgpack_modules=True))


def test_of_a_damaged_message_nothing_is_built_twice() -> None:
    fast, parent = pair(allowed_msgpack_modules=None)
    content = ormsgpack.packb(
        ("langchain_core.messages.human", "HumanMessage", {"a": _blocked()}, "model_validate_json")
    )
    for broken in (content[:-1], content[:50], content[:1], b""):
        check_read(("msgpack", ormsgpack.packb(ormsgpack.Ext(jsonplus.EXT_PYDANTIC_V2, broken))), fast, parent)


def _blocked() -> ormsgpack.Ext:
    return ormsgpack.Ext(jsonplus.EXT_CONSTRUCTOR_SINGLE_ARG, ormsgpack.packb(("some.where", "Class", 1)))


@pytest.mark.parametrize("cls", KNOWN, ids=lambda cls: cls.__name__)
def test_every_class_of_this_langchain_core_is_known(cls: Any) -> None:
    known = _messages.message_of(cls)
    assert known is not None
    assert known.packs
    assert known.reads
    assert known.restores


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, 0, -1, 2**64 - 1, 1.5, "é", b"", b"x", bytearray(b"x"), (), [], {}, {1: (2,)}, {"a": {"b": [0]}}),
        *(Send("n", CHAT), State(CHAT), {"messages": CHAT}, {1, 2}, Model(b=CHAT)),
    ],
    ids=repr,
)
def test_values_come_back_as_from_the_parent(value: Any) -> None:
    check_values(value, *pair())


@pytest.mark.parametrize("value", [object(), 2**64, [object()], CHAT[1].model_copy(update={"artifact": object()})])
def test_what_cannot_be_serialised_raises_as_the_parent(value: Any) -> None:
    check_values(value, *pair())
    with pytest.raises(TypeError, match=r"not msgpack serializable|64-bit"):
        FastSerializer().dumps_typed(value)


def test_loads_of_one_value_share_nothing() -> None:
    fast = FastSerializer()
    dumped = fast.dumps_typed(CHAT)
    one, other = fast.loads_typed(dumped), fast.loads_typed(dumped)
    for first, second in zip(one, other, strict=True):
        first.additional_kwargs["new"] = 1
        first.__pydantic_fields_set__.clear()
        first.__pydantic_extra__["new"] = 1
        assert second.additional_kwargs == {}
        assert second.__pydantic_fields_set__
        assert second.__pydantic_extra__ == {}


def test_a_restored_message_validates_and_copies_as_any() -> None:
    fast = FastSerializer()
    message = fast.loads_typed(fast.dumps_typed(CHAT[3]))
    assert message == CHAT[3]
    assert message.model_copy(update={"content": "x"}).content == "x"
    assert message.model_dump_json() == CHAT[3].model_dump_json()
    assert (message + CHAT[1]).messages == [CHAT[3], CHAT[1]]


def test_pickle_is_the_last_resort_when_it_is_asked_for() -> None:
    fast, parent = pair(pickle_fallback=True)
    dumped = fast.dumps_typed([2**70, CHAT])
    assert dumped[0] == "pickle"
    assert dumped == parent.dumps_typed([2**70, CHAT])
    assert fast.loads_typed(dumped) == [2**70, CHAT]
    with pytest.raises(NotImplementedError, match="Unknown serialization type: pickle"):
        FastSerializer().loads_typed(dumped)


def test_json_of_older_checkpoints_is_read_by_the_parent() -> None:
    name = ["langchain_core", "messages", "human", "HumanMessage"]
    old = json.dumps({"lc": 2, "type": "constructor", "id": name, "kwargs": {"content": "x"}}).encode()
    assert FastSerializer().loads_typed(("json", old)) == HumanMessage("x")


def test_an_allowlist_blocks_and_warns_once_as_the_parent(caplog: pytest.LogCaptureFixture) -> None:
    value = [State(CHAT, Model()), State(CHAT)]
    for allowed, kind in ((None, dict), ([State], State)):
        fast, parent = pair(allowed_msgpack_modules=allowed)
        check_values(value, fast, parent)
        assert type(fast.loads_typed(fast.dumps_typed(value))[0]) is kind
    jsonplus._warned_blocked_types.clear()
    caplog.clear()
    fast = FastSerializer(allowed_msgpack_modules=None)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            fast.loads_typed(fast.dumps_typed(value))
    assert [r.args for r in caplog.records if "Blocked" in r.getMessage()] == [
        (cls.__module__, cls.__name__) * 2 for cls in (Model, State)
    ]


def test_a_wider_allowlist_keeps_the_class_and_leaves_the_first_alone() -> None:
    narrow = FastSerializer(allowed_msgpack_modules=None)
    wide = narrow.with_msgpack_allowlist([State])
    dumped = narrow.dumps_typed([State([CHAT[1]])])
    assert type(wide) is FastSerializer
    assert isinstance(wide, JsonPlusSerializer)
    assert wide.loads_typed(dumped) == [State([CHAT[1]])]
    assert type(narrow.loads_typed(dumped)[0]) is dict
    assert wide.with_msgpack_allowlist([State]) is wide
    permissive = FastSerializer(allowed_msgpack_modules=True)
    assert permissive.with_msgpack_allowlist([State]) is permissive


def test_the_strict_mode_of_the_environment_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("langgraph.checkpoint.serde._msgpack.STRICT_MSGPACK_ENABLED", True)
    fast = FastSerializer()
    assert type(fast.loads_typed(fast.dumps_typed(State()))) is dict
    assert fast.loads_typed(fast.dumps_typed(CHAT)) == CHAT


def test_a_hook_of_the_callers_own_gets_everything() -> None:
    seen: list[int] = []

    def hook(code: int, data: bytes) -> Any:
        seen.append(code)
        return "mine"

    fast = FastSerializer(__unpack_ext_hook__=hook)
    assert fast.loads_typed(fast.dumps_typed([CHAT[0], {1}])) == ["mine", "mine"]
    assert seen == [jsonplus.EXT_PYDANTIC_V2, jsonplus.EXT_CONSTRUCTOR_SINGLE_ARG]
    assert type(fast.with_msgpack_allowlist([State])) is FastSerializer


def test_messages_nested_in_other_values_are_fast_too(monkeypatch: pytest.MonkeyPatch) -> None:
    fast = FastSerializer()
    dumped = fast.dumps_typed([State([CHAT[1]]), Send("n", {"m": CHAT[1]})])
    known = _messages.message_of(HumanMessage)
    assert known is not None
    monkeypatch.setattr(HumanMessage, "__init__", lambda *args, **kwargs: pytest.fail("constructed"))
    assert fast.loads_typed(dumped)[1].arg == {"m": CHAT[1]}


def test_inside_an_encrypting_serialiser() -> None:
    encrypting = EncryptedSerializer.from_pycryptodome_aes(serde=FastSerializer(), key=b"0123456789abcdef")
    kind, data = encrypting.dumps_typed(CHAT)
    assert kind == "msgpack+aes"
    assert encrypting.loads_typed((kind, data)) == CHAT


def test_threads_may_share_one_from_the_first_message_on() -> None:
    forget_classes()
    fast, parent = pair()
    expected = parent.dumps_typed(CHAT)
    chat = parent.loads_typed(expected)
    start = threading.Barrier(8)
    right: list[bool] = []

    def work() -> None:
        start.wait()
        right.extend(fast.dumps_typed(CHAT) == expected and alike(fast.loads_typed(expected), chat) for _ in range(20))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert right == [True] * 160


@pytest.mark.parametrize("missing", ["_msgpack_default", "_option", "_create_msgpack_ext_hook", "EXT_PYDANTIC_V2"])
def test_a_parent_whose_inner_parts_are_others_does_all_the_work(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    # The parent itself must go on working: a module lacks the name to those who import it from now on.
    without = ModuleType("jsonplus")
    without.__dict__.update({k: v for k, v in vars(jsonplus).items() if k != missing})
    monkeypatch.setattr("langgraph.checkpoint.serde.jsonplus", without)
    monkeypatch.setitem(sys.modules, "langgraph.checkpoint.serde.jsonplus", without)
    for name in ("redis_ckpt._messages", "redis_ckpt._packing"):
        monkeypatch.delitem(sys.modules, name)
    spec = importlib.util.find_spec("redis_ckpt.serde")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module._KNOWN is False
    slow = module.FastSerializer()
    assert slow.dumps_typed(CHAT) == JsonPlusSerializer().dumps_typed(CHAT)
    assert slow.loads_typed(slow.dumps_typed(CHAT)) == CHAT
    assert slow.loads_typed(slow.dumps_typed(None)) is None


def test_a_parent_that_packs_otherwise_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert serde._KNOWN
    assert _packing.is_as_known()
    monkeypatch.setattr(jsonplus, "_msgpack_enc", lambda value: b"\xc0")
    assert not _packing.is_as_known()


def test_pydantic_is_one_whose_models_have_the_slots_that_are_set() -> None:
    assert pydantic.VERSION.startswith("2.")
    assert {"__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__"} <= vars(
        BaseModel
    ).keys()
