"""Records, byte by byte, and that everything comes back as it went in."""

from __future__ import annotations

import logging
from decimal import Decimal
from enum import IntEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langgraph.checkpoint.base import CheckpointMetadata
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from redis_ckpt import _codec as codec
from redis_ckpt.errors import StorageVersionError

SERDE = JsonPlusSerializer()
US, RS, GS = b"\x1f", b"\x1e", b"\x1d"


class Colour(IntEnum):
    RED = 1


def checkpoint(**parts: Any) -> Any:
    return {
        "v": 4,
        "id": "c1",
        "ts": "2026-01-01T00:00:00+00:00",
        "channel_values": {},
        "channel_versions": {},
        "versions_seen": {},
        "updated_channels": None,
    } | parts


def encode(parts: Any, config: Any = None, metadata: Any = None, new: Any = None) -> codec.Encoded:
    where: Any = config or {"configurable": {"thread_id": "t"}}
    return codec.encode_checkpoint(SERDE, where, parts, metadata or CheckpointMetadata(), new or {})


def whole(encoded: codec.Encoded) -> bytes:
    """The record as the script puts it together when no quiet channel has a value."""
    head, refs, body = encoded.record
    return head + refs + GS + body


def decode(record: bytes) -> dict[str, Any]:
    return codec.decode_checkpoint(SERDE, record, "it").checkpoint


def test_a_checkpoint_record_has_a_head_that_string_functions_can_read() -> None:
    encoded = encode(
        checkpoint(
            channel_values={"a": 1, "b:c": 2, "unversioned": 3},
            channel_versions={"a": 7, "b:c": "x.1", "d": 3, "empty": 2},
        ),
        config={"configurable": {"thread_id": "t", "checkpoint_id": "p1"}},
        metadata={
            "run_id": "r 1",
            "parents": {"": "root1"},
            "counters_since_delta_snapshot": {"d": (1, 1), "a": (1, 1)},
        },
        new={"a": 7, "empty": 2},
    )
    assert encoded.record[0] == b"1p1" + GS + b"r%201" + GS + b"root1" + GS + b"d" + RS + GS
    assert encoded.record[1] == b"a" + US + b"7" + RS + b"b%3Ac" + US + b"=x.1"
    assert encoded.quiet == [b"d" + US + b"3"]
    assert encoded.run_id == "r 1"
    assert encoded.emptied == [b"empty" + US + b"2"]
    assert {ref: value.record for ref, value in encoded.values.items()} == {
        b"a" + US + b"7": b"1fmsgpack" + US + b"\x01"
    }
    assert encoded.others == {b"b%3Ac" + US + b"=x.1": "b:c"}
    assert codec.decode_header(whole(encoded)) == (
        b"p1",
        b"r%201",
        b"root1",
        (b"d",),
        (b"a" + US + b"7", b"b%3Ac" + US + b"=x.1"),
    )


def test_a_write_record_begins_with_its_channel() -> None:
    record = codec.encode_write(SERDE, "a:b", "~pull, x", b"\x00\xff")
    assert record == b"1a%3Ab" + US + b"~pull,%20x" + US + b"bytes" + US + b"\x00\xff"


def test_writes_come_in_the_order_in_which_a_step_applies_them() -> None:
    def pair(path: str, task: str, idx: int) -> tuple[bytes, bytes]:
        return b"ns\x1fid\x1f%b\x1f%d" % (task.encode(), idx), codec.encode_write(SERDE, "c", path, 0)

    pairs = [pair("~b", "a", 0), pair("~a", "z", 10), pair("~a", "z", 9), pair("~a", "z", -3), pair("~a", "b", 0)]
    assert [w[:3] for w in codec.decode_writes(pairs, "t")] == [
        ("~a", "b", 0),
        ("~a", "z", -3),
        ("~a", "z", 9),
        ("~a", "z", 10),
        ("~b", "a", 0),
    ]


VERSION = st.integers(-(2**62), 2**62) | st.floats(allow_nan=False) | st.text(max_size=5)
NAME = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
VERSIONS = st.dictionaries(NAME, VERSION, max_size=4)


def typed(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: typed(v) for k, v in value.items()}
    return type(value), value


@given(VERSIONS, st.dictionaries(NAME, VERSIONS, max_size=3), st.none() | st.lists(NAME, max_size=3), st.integers(1, 9))
def test_a_checkpoint_comes_back_with_the_types_of_its_versions(
    versions: dict[str, Any], seen: dict[str, Any], updated: list[str] | None, v: int
) -> None:
    parts = checkpoint(channel_versions=versions, versions_seen=seen, updated_channels=updated, v=v)
    got = decode(whole(encode(parts)))
    assert typed(got["channel_versions"]) == typed(versions)
    assert typed(got["versions_seen"]) == typed(seen)
    assert got["updated_channels"] == updated
    assert got["v"] == v


@pytest.mark.parametrize(
    "parts",
    [
        {"pending_sends": [1, 2]},
        {"channel_versions": {"a": True}},
        {"channel_versions": {"a": Decimal("1.5")}},
        {"v": "1"},
        {"ts": None},
        {"updated_channels": ("a",)},
        {"extra": {"deep": [1]}},
        {"versions_seen": {"node": {"a": Decimal(1)}}},
    ],
)
def test_a_checkpoint_of_another_shape_is_what_the_serialiser_makes_of_it(parts: dict[str, Any]) -> None:
    given_parts = checkpoint(**parts)
    got = decode(whole(encode(given_parts)))
    rest = {k: v for k, v in given_parts.items() if k != "channel_values"}
    assert typed(got) == typed(SERDE.loads_typed(SERDE.dumps_typed(rest)))


def test_a_checkpoint_that_lacks_keys_comes_back_without_them() -> None:
    parts = checkpoint()
    del parts["updated_channels"]
    assert "updated_channels" not in decode(whole(encode(parts)))


def test_huge_versions_come_back() -> None:
    version = 2**63 + 1
    assert decode(whole(encode(checkpoint(channel_versions={"a": version}))))["channel_versions"] == {"a": version}


def test_a_channel_name_with_a_lone_surrogate_is_refused_as_the_serialiser_refuses_it() -> None:
    with pytest.raises(TypeError, match="surrogates"):
        encode(checkpoint(channel_versions={"\ud800": 1}, channel_values={"\ud800": 5}), new={"\ud800": 1})


BAD = object()


@pytest.mark.parametrize(
    ("what", "encoding"),
    [
        ("the write to channel 'bad'", lambda: codec.encode_write(SERDE, "bad", "", BAD)),
        ("the metadata", lambda: encode(checkpoint(), metadata={"x": BAD})),
        (
            "the value of channel 'bad'",
            lambda: encode(checkpoint(channel_values={"bad": BAD}, channel_versions={"bad": 1}), new={"bad": 1}),
        ),
    ],
)
def test_what_cannot_be_serialised_is_named(what: str, encoding: Any) -> None:
    with pytest.raises(TypeError, match=what):
        encoding()


@pytest.mark.parametrize("record", [b"9rest", b"2", b"\xff", b""])
def test_a_newer_format_is_refused_by_both_version_numbers(record: bytes) -> None:
    for reading in (
        lambda: codec.decode_header(record),
        lambda: codec.decode_checkpoint(SERDE, record, "it"),
        lambda: codec.decode_whole(record, "c", "t"),
        lambda: codec.decode_writes([(b"a\x1fb\x1fc\x1f0", record)], "t"),
    ):
        with pytest.raises(StorageVersionError) as caught:
            reading()
        assert caught.value.known in ("1", "2")  # only deltas are of the second
        assert caught.value.stored == record[:1].decode("latin-1")
        assert f"up to {caught.value.known!r}" in str(caught.value)


def test_metadata_is_merged_with_the_config_and_keeps_every_text() -> None:
    config: Any = {
        "configurable": {"thread_id": "t", "user": "u\0", "checkpoint_ns": "", "__hidden": 1, "both": "low"},
        "metadata": {"team": "x", "step": 9, "both": "high"},
    }
    assert codec.merged_metadata(config, {"step": 1, "note": "p\0q"}) == {  # type: ignore[typeddict-unknown-key]
        "step": 1,
        "note": "p\0q",
        "team": "x",
        "user": "u\0",
        "both": "high",
    }


@pytest.mark.parametrize(
    ("stored", "wanted", "equal"),
    [
        (True, True, True),
        (True, 1, False),
        (1, True, False),
        (0, False, False),
        (1, 1.0, True),
        ({"a": [1, {"b": True}]}, {"a": [1, {"b": True}]}, True),
        ({"a": [1, {"b": True}]}, {"a": [1, {"b": 1}]}, False),
        ([1, 2], (1, 2), True),
        ([1], [1, 2], False),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        (None, None, True),
        ("true", True, False),
    ],
)
def test_filters_compare_strictly(stored: Any, wanted: Any, equal: bool) -> None:
    assert codec.same(stored, wanted) is equal


def test_the_log_of_a_class_that_is_gone_tells_thread_and_channel(caplog: pytest.LogCaptureFixture) -> None:
    kind, data = SERDE.dumps_typed(Colour.RED)
    renamed = data.replace(b"Colour", b"Coloru")
    with caplog.at_level(logging.WARNING), codec.Reader(SERDE, "thread-7") as read:
        read(kind.encode(), renamed, "paint")
    assert [r for r in caplog.records if "'thread-7'" in r.getMessage() and "'paint'" in r.getMessage()]
