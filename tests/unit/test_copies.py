"""Messages that are copied in place of being restored again: nobody can tell, and they take no more than they may."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from datetime import timedelta
from math import inf
from typing import Any

import langchain_core.messages as lc
import pytest
from langgraph.types import Send

from redis_ckpt._copies import MOST_NESTED, TEMPLATE_BYTES, Copies
from redis_ckpt.serde import FastSerializer, new_copies
from tests.property.serialisers import alike
from tests.unit.test_serde import CHAT, UNSETTLED

Load = Callable[[tuple[str, bytes]], Any]


def copies_of(most_bytes: float = inf) -> Copies:
    made = new_copies(most_bytes)
    assert made is not None
    return made


def deep(levels: int) -> Any:
    return {} if levels == 0 else {"x": [deep(levels - 1)]}


COPIED = [
    *CHAT[:9],
    lc.HumanMessage([{"type": "text", "text": "é"}, {"type": "image", "source": {"data": [1, 2.5, None, True]}}]),
    lc.AIMessage("x", additional_kwargs={"a": {"b": [1, {"c": []}]}}, response_metadata={"model_name": "m", "n": 1}),
    lc.HumanMessage("x", additional_kwargs={"deep": deep(12)}),
]


def mutables(value: Any) -> list[Any]:
    """Everything in a value that can be changed."""
    if isinstance(value, lc.BaseMessage):
        parts = [value.__dict__, value.__pydantic_fields_set__, value.__pydantic_extra__]
        return [value, *(found for part in parts for found in mutables(part))]
    if isinstance(value, (list, dict)):
        items = value if isinstance(value, list) else value.values()
        return [value, *(found for item in items for found in mutables(item))]
    return [value] if isinstance(value, set) else []


@pytest.mark.parametrize("message", COPIED, ids=lambda m: type(m).__name__)
def test_a_copy_is_as_what_is_restored_and_shares_nothing(message: Any) -> None:
    serde, copies = FastSerializer(), copies_of()
    dumped = serde.dumps_typed([message])
    expected = serde.loads_typed(dumped)
    load = serde.loads_with(copies)
    first = load(dumped)
    held = len(copies._young)
    second = load(dumped)
    third = serde.loads_with(copies)(dumped)
    assert held == 1
    assert all(alike(found, expected) for found in (first, second, third))
    places = [{id(part) for part in mutables(found)} for found in (first, second, third)]
    assert not places[0] & places[1]
    assert not places[1] & places[2]


def test_what_a_caller_does_to_a_message_shows_in_no_copy() -> None:
    serde, copies = FastSerializer(), copies_of()
    dumped = serde.dumps_typed(COPIED)
    for _ in range(3):
        loaded = serde.loads_with(copies)(dumped)
        assert alike(loaded, serde.loads_typed(dumped))
        for part in mutables(loaded):
            if isinstance(part, lc.BaseMessage):
                part.content = "changed"
            else:
                part.clear()


@pytest.mark.parametrize("message", UNSETTLED[:-1], ids=lambda m: type(m).__name__)
@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
def test_what_has_to_be_constructed_comes_as_without_copies(message: Any) -> None:
    serde, copies = FastSerializer(allowed_msgpack_modules=True), copies_of()
    dumped = serde.dumps_typed([message])
    for _ in range(3):
        assert alike(serde.loads_with(copies)(dumped), serde.loads_typed(dumped))


@pytest.mark.parametrize("artifact", [{3}, timedelta(1), Send("n", 1), [[]] * MOST_NESTED], ids=repr)
def test_a_message_that_holds_more_than_plain_data_is_restored_each_time(artifact: Any) -> None:
    serde, copies = FastSerializer(allowed_msgpack_modules=True), copies_of()
    dumped = serde.dumps_typed(lc.ToolMessage("r", tool_call_id="c", artifact=artifact))
    for _ in range(3):
        assert alike(serde.loads_with(copies)(dumped), serde.loads_typed(dumped))
    assert copies.size_bytes == 0


def test_what_one_reader_may_not_have_is_not_kept_from_another() -> None:
    free, copies = FastSerializer(allowed_msgpack_modules=True), copies_of()
    strict = FastSerializer(allowed_msgpack_modules=None)
    from tests.property.messages import Colour

    dumped = free.dumps_typed([lc.ToolMessage("r", tool_call_id="c", artifact=Colour.RED)])
    for serde in (strict, free, strict, free):
        assert alike(serde.loads_with(copies)(dumped), serde.loads_typed(dumped))
    assert free.loads_with(copies)(dumped)[0].artifact is Colour.RED


def test_a_class_that_was_replaced_is_not_made_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    serde, copies = FastSerializer(), copies_of()
    dumped = serde.dumps_typed([lc.HumanMessage("x")])
    serde.loads_with(copies)(dumped)
    own = type("HumanMessage", (lc.HumanMessage,), {"__module__": lc.HumanMessage.__module__})
    monkeypatch.setattr("langchain_core.messages.human.HumanMessage", own)
    (found,) = serde.loads_with(copies)(dumped)
    assert type(found) is own


def test_the_bytes_are_bounded_and_the_older_half_goes() -> None:
    serde = FastSerializer()
    texts = [serde.dumps_typed([lc.HumanMessage(f"{n:03}" * 100)]) for n in range(100)]
    copies = copies_of(40_000)
    for dumped in texts:
        serde.loads_with(copies)(dumped)
        assert copies.size_bytes <= 40_000
    assert copies.size_bytes > 10_000
    template = next(iter(copies._young.values()))
    assert template.state["content"].startswith(("08", "09"))
    serde.loads_with(copies)(serde.dumps_typed([lc.HumanMessage("x" * 50_000)]))
    assert copies.size_bytes <= 40_000


def test_a_serialiser_that_reads_in_its_own_way_is_asked_itself() -> None:
    class Own(FastSerializer):
        def loads_typed(self, data: tuple[str, bytes]) -> Any:
            return "own"

    hooked = FastSerializer(__unpack_ext_hook__=lambda code, data: "hooked")
    for serde, expected in ((Own(), "own"), (hooked, ["hooked"])):
        copies = copies_of()
        for _ in range(2):
            assert serde.loads_with(copies)(FastSerializer().dumps_typed([CHAT[0]])) == expected
        assert copies.size_bytes == 0


def test_damaged_bytes_end_as_without_copies() -> None:
    serde, copies = FastSerializer(), copies_of()
    kind, content = serde.dumps_typed([CHAT[0]])
    broken = (kind, content.replace(b"brief", b"bri\xc1f"))
    assert alike(serde.loads_with(copies)(broken), serde.loads_typed(broken))
    assert copies.size_bytes == 0


def test_other_kinds_are_read_as_ever() -> None:
    serde, copies = FastSerializer(pickle_fallback=True), copies_of()
    for value in (None, b"x", bytearray(b"x"), {1: 2}):
        assert serde.loads_with(copies)(serde.dumps_typed(value)) == value


def memory_taken(load: Load, dumped: list[tuple[str, bytes]]) -> int:
    """What remains of reading these, in bytes."""
    load(dumped.pop())  # what is only needed once
    tracemalloc.start()
    try:
        for each in dumped:
            load(each)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return taken


def test_the_size_of_a_template_is_not_understated() -> None:
    serde, copies = FastSerializer(), copies_of()
    dumped = [serde.dumps_typed([lc.AIMessage(f"{n}" * 300, id=f"run-{n}")]) for n in range(500)]
    taken = memory_taken(serde.loads_with(copies), dumped)
    assert taken <= copies.size_bytes
    assert len(copies._young) == 500
    assert copies.size_bytes > 500 * TEMPLATE_BYTES


@pytest.mark.parametrize(
    "metadata",
    [
        {"logprobs": [{"token": f"t{n}", "logprob": -0.5, "top": []} for n in range(8)]},
        {"ids": list(range(90))},
        {"rows": [["a", "b"]] * 20},
    ],
    ids=["dicts", "numbers", "lists"],
)
def test_the_size_of_what_is_nested_is_not_understated(metadata: Any) -> None:
    serde, copies = FastSerializer(), copies_of()
    said = [lc.AIMessage("x", id=f"run-{n}", response_metadata={"n": n, **metadata}) for n in range(300)]
    dumped = [serde.dumps_typed([message]) for message in said]
    taken = memory_taken(serde.loads_with(copies), dumped)
    assert len(copies._young) == 300
    assert taken <= copies.size_bytes


MUCH: list[Any] = [[[]] * 10_000, {str(n): n for n in range(10_000)}]


@pytest.mark.parametrize("much", MUCH, ids=["lists", "dict"])
def test_what_is_long_to_copy_is_restored_each_time(much: Any) -> None:
    serde, copies = FastSerializer(), copies_of()
    dumped = serde.dumps_typed([lc.ToolMessage("r", tool_call_id="c", artifact=much)])
    for _ in range(2):
        assert alike(serde.loads_with(copies)(dumped), serde.loads_typed(dumped))
    assert copies.size_bytes == 0
