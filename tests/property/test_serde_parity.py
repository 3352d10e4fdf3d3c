"""The fast serialiser against its parent: nobody can tell which of the two wrote or read a value."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from redis_ckpt.serde import FastSerializer, new_copies
from tests.profiles import by_profile
from tests.property.messages import Colour, MyMessage, State, states
from tests.property.serialisers import check_read, check_values, observe, pair

EXAMPLES = by_profile(400, 20_000)
CHECKS = settings(
    deadline=None,
    max_examples=EXAMPLES,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    print_blob=True,
)
KEY = b"0123456789abcdef"
# No allowlist, the strict one, one with some classes of the tests.
ALLOWLISTS: tuple[Any, ...] = (True, None, [State, MyMessage], [("tests.property.messages", "Colour")])


@pytest.mark.timeout(3600)
@CHECKS
@given(states)
def test_bytes_and_objects_are_the_parents(value: Any) -> None:
    check_values(value, *pair(allowed_msgpack_modules=True))


@pytest.mark.timeout(3600)
@settings(CHECKS, max_examples=EXAMPLES // 4)
@given(states, st.sampled_from(ALLOWLISTS), st.booleans())
def test_allowlists_block_and_warn_as_the_parents(value: Any, allowed: Any, pickles: bool) -> None:
    options: dict[str, Any] = {"allowed_msgpack_modules": allowed, "pickle_fallback": pickles}
    check_values(value, *pair(**options))
    extra: list[Any] = [Colour, ("tests.property.messages", "State")]
    check_values(value, *(serde.with_msgpack_allowlist(extra) for serde in pair(**options)))


@pytest.mark.timeout(3600)
@settings(CHECKS, max_examples=EXAMPLES // 4)
@given(states, st.sampled_from(ALLOWLISTS), st.booleans())
def test_copies_of_messages_are_as_what_the_parent_gives(value: Any, allowed: Any, is_next_allowed: bool) -> None:
    """Whatever was read before, by whom, and how often: results, errors, warnings and events."""
    written = observe(lambda: JsonPlusSerializer(allowed_msgpack_modules=allowed).dumps_typed(value))
    if written.error is not None:
        return
    copies = new_copies(inf)
    assert copies is not None
    for modules in (allowed, allowed, is_next_allowed or None, allowed):
        fast, parent = pair(allowed_msgpack_modules=modules)
        check_read(written.result, Copying(fast.loads_with(copies)), parent)


class Copying(NamedTuple):
    loads_typed: Callable[[tuple[str, bytes]], Any]


@settings(CHECKS, max_examples=EXAMPLES // 8)
@given(states)
def test_inside_an_encrypting_serialiser(value: Any) -> None:
    fast, parent = (
        EncryptedSerializer.from_pycryptodome_aes(serde=serde(allowed_msgpack_modules=True), key=KEY)
        for serde in (FastSerializer, JsonPlusSerializer)
    )
    written = observe(lambda: fast.dumps_typed(value))
    if written.error is None:
        check_read(written.result, fast, parent)


@settings(CHECKS, max_examples=EXAMPLES // 4)
@given(states, st.data())
def test_damaged_bytes_end_as_with_the_parent(value: Any, data: st.DataObject) -> None:
    fast, parent = pair(allowed_msgpack_modules=None)
    written = observe(lambda: parent.dumps_typed(value))
    if written.error is not None or not written.result[1]:
        return
    kind, content = written.result
    damaged = bytearray(content)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(damaged[: data.draw(st.integers(len(damaged) // 2, len(damaged)))])
    for broken in (bytes(damaged), cut):
        check_read((kind, broken), fast, parent)
