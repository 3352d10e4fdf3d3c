"""Shapes: what fits one is what pydantic dumps and validates to itself."""

from __future__ import annotations

import itertools
import warnings
from typing import Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, create_model
from typing_extensions import NotRequired, Required, TypedDict

from redis_ckpt._shapes import UnknownShapeError, compile_function, kind_of


class Call(TypedDict):
    name: str
    args: dict[str, Any]
    note: NotRequired[int | str]


class Details(TypedDict, total=False):
    id: Required[str | None]
    count: int
    anything: Any
    call: Call


class Configured(TypedDict):
    __pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[misc]
    name: str


class Wide(TypedDict, total=False):
    a: int
    b: int
    c: int
    d: int
    e: int
    f: int
    g: int


HINTS: tuple[Any, ...] = (
    *(str, int, float, bool, None, Any, dict, dict[Any, Any], dict[str, Any], str | None, list[str], list[str | int]),
    *(Literal["a"], Literal["a", "{b}"], Literal["a"] | None, list[Any], list[dict[str, Any]], Call, Details | None),
    *(list[Call], str | list[str | dict[Any, Any]], list[list[float]], bool | int | None),
)
UNKNOWN: tuple[Any, ...] = (
    *(
        bytes,
        set[str],
        tuple[int, ...],
        Literal[1],
        Literal["a"] | str,
        list,
        dict[int, Any],
        BaseModel,
        Configured,
        Wide,
    ),
    *(Any | None, Call | Details, "str", type),
)
CALLS: tuple[Any, ...] = (
    *(
        {"name": "n", "args": {}},
        {"args": {}, "name": "n"},
        {"name": "n", "args": {1: 2}},
        {"name": "n"},
        {"name": 1, "args": {}},
    ),
    *(
        {"name": "n", "args": {"a": 1}, "note": 1},
        {"note": "x", "name": "n", "args": {}},
        {"name": "n", "args": {}, "note": 1.0},
    ),
    *({"name": "n", "args": {}, "more": 1}, {"more": 1, "name": "n", "args": {}}, {"name": "n", "args": {}, 5: 1}),
)
VALUES: tuple[Any, ...] = (
    *(
        None,
        "",
        "a",
        "{b}",
        0,
        1,
        True,
        1.0,
        2.5,
        b"x",
        (),
        ["a"],
        ["a", 1],
        [1.0],
        [[1.0]],
        [[1]],
        [None],
        {},
        {"a": 1},
    ),
    *({1: 2}, {"id": None}, {"id": "x", "count": 1}, {"count": 1, "id": "x"}, {"id": 1}, {"id": "x", "anything": (1,)}),
    *(
        {"id": "x", "call": CALLS[0]},
        {"id": "x", "call": CALLS[1]},
        {"id": "x", "other": 1},
        [],
        [{}],
        [{"a": 1}],
        [{1: 2}],
    ),
    *CALLS,
    *([call] for call in CALLS),
    [CALLS[0], CALLS[1]],
)


def alike(ours: Any, theirs: Any) -> bool:
    return repr(ours) == repr(theirs)


@pytest.mark.parametrize("extra", ["allow", "ignore"])
@pytest.mark.parametrize("hint", HINTS, ids=str)
def test_what_fits_is_dumped_and_validated_to_itself(hint: Any, extra: Literal["allow", "ignore"]) -> None:
    model = create_model("Of", __config__=ConfigDict(extra=extra), value=(hint, ...))
    kinds = {"value": kind_of(hint, extra == "allow")}
    tests = [
        compile_function(kinds, ["def function(state):"], ["return True"], validates=validates, names={})
        for validates in (False, True)
    ]
    fitting = 0
    for value in itertools.chain(VALUES, kinds["value"].samples):
        dumps, validates = (test({"value": value}) for test in tests)
        # Keys that are no strings never reach the serialiser of a `TypedDict`: packing refuses them before.
        if dumps and "5: 1" not in repr(value) and "1: 2" not in repr(value):
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                assert alike(model.model_construct(value=value).model_dump()["value"], value)
        if validates:
            fitting += 1
            assert dumps
            assert alike(model(value=value).value, value)  # type: ignore[attr-defined]
    assert fitting > 0


@pytest.mark.parametrize("hint", UNKNOWN, ids=str)
def test_an_annotation_that_is_not_known_is_not_guessed(hint: Any) -> None:
    with pytest.raises(UnknownShapeError):
        kind_of(hint, True)


def test_all_fields_must_be_there_and_no_others() -> None:
    kinds = {"a": kind_of(Any, True), "b": kind_of(str, True)}
    take = compile_function(kinds, ["def function(state):"], ["return {state}"], validates=True, names={})
    assert list(take({"b": "x", "a": 1}).items()) == [("a", 1), ("b", "x")]
    assert take({"a": 1, "b": 2}) is None
    assert take({"a": 1}) is None
    assert take({"a": 1, "b": "x", "c": 1}) is None
