"""What a delta keeps of its base, how it is written down, and what comes of it when it is put together again."""

from __future__ import annotations

import itertools
import random
import zlib
from collections.abc import Iterator
from typing import Any

import ormsgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redis_ckpt import _delta
from redis_ckpt._delta import STEPS, BrokenChainError, Delta, Shape

SIZES = (0, 1, 2, 3, 4, 5, 8, 15, 16, 17, 31, 32, 100, 255, 256, 257, 65_535, 65_536, 65_537)
MOST_LINKS = 31 + 63 + 63  # below the greatest step, of which there may be any number
MOST_NUMBER = 5_000

# Few different bytes, so that parts of one text are found in another.
parts = st.one_of(
    st.binary(max_size=12),
    st.text("ab", max_size=90).map(str.encode),
    st.sampled_from([b"x" * 300, b"0123456789" * 30]),
)
texts = st.lists(parts, max_size=5).map(b"".join)


def delta(shape: Shape, new: bytes, check: int, number: int = 1) -> Delta:
    return Delta(b"msgpack", number, b"1", 9, shape, check, new)


def delta_on(base: bytes, head: bytes, body: bytes, number: int = 1) -> Delta:
    """The delta of a body on another."""
    shape = _delta.shape_on(base, len(head), body)
    new = head + body[: shape.lead] + body[shape.lead + shape.keep : len(body) - shape.suffix]
    rest = base[len(base) - shape.suffix :]
    return delta(shape, new, _delta.check_of(base[shape.start : shape.start + shape.keep], rest), number)


# Heads.


def packed(size: int) -> Iterator[tuple[Any, int]]:
    """Values that hold so many items or bytes, and how many bytes these take."""
    yield [0] * size, size
    yield "a" * size, size
    yield b"a" * size, size
    mapping = {f"{n:08}": n % 100 for n in range(size)}
    yield mapping, size * len(ormsgpack.packb("00000000") + ormsgpack.packb(0))


@pytest.mark.parametrize("size", SIZES)
def test_the_head_is_what_msgpack_writes_before_the_items(size: int) -> None:
    for value, items in packed(size):
        data = ormsgpack.packb(value)
        assert _delta.head_length(b"msgpack", data) == len(data) - items, type(value)
        assert _delta.head_length(b"pickle", data) == 0


@pytest.mark.parametrize("size", SIZES)
def test_the_head_of_an_extension(size: int) -> None:
    data = ormsgpack.packb(ormsgpack.Ext(5, b"a" * size))
    fixed = size in (1, 2, 4, 8, 16)  # such a one never grows in its place
    assert _delta.head_length(b"msgpack", data) == (0 if fixed else len(data) - size)


@pytest.mark.parametrize("value", [None, True, False, 0, -1, 127, 1000, 2**63, 0.5])
def test_what_has_no_items_has_no_head(value: object) -> None:
    assert _delta.head_length(b"msgpack", ormsgpack.packb(value)) == 0
    assert _delta.head_length(b"msgpack", b"") == 0


# Numbers.


def chain_of(number: int) -> list[int]:
    """The number and those below it, down to the whole value."""
    found = [number]
    while found[-1] > 0:
        found.append(_delta.base_number(found[-1]))
    return found


def test_every_number_leads_to_a_whole_value_in_few_steps() -> None:
    for number in (*range(MOST_NUMBER), 65_535, 65_536, 131_071, 131_072, 131_073, 2**20 - 1):
        chain = chain_of(number)
        assert chain[-1] == 0
        assert [*chain] == sorted(set(chain), reverse=True)
        assert len(chain) - 1 <= MOST_LINKS + number // STEPS[-1]
    assert len(chain_of(1_000)) - 1 <= 31 + 31


def test_what_is_remembered_of_a_number_is_what_later_ones_lead_to() -> None:
    """Whoever holds number n and meets a later chain needs the first of its links that is not later than n."""
    for later in range(1, MOST_NUMBER):
        base = _delta.base_number(later)
        for held in range(base, later):
            assert base == held or base in _delta.floors(held), (later, held)


def test_few_numbers_are_remembered() -> None:
    for number in (*range(MOST_NUMBER), 131_072 * 3 + 2048 * 5 + 32 * 7 + 9):
        floors = _delta.floors(number)
        assert len(floors) < len(STEPS)
        assert all(0 <= floor < number for floor in floors)


# What is common.


@given(texts, texts, st.integers(0, 400))
def test_common_prefix_is_the_naive_one(a: bytes, b: bytes, at: int) -> None:
    at, naive = min(at, len(a)), 0
    while naive < min(len(a) - at, len(b)) and a[at + naive] == b[naive]:
        naive += 1
    assert _delta.common_prefix(a, b, at) == naive


@given(texts, texts, st.integers(0, 600))
def test_common_suffix_is_the_naive_one(a: bytes, b: bytes, most: int) -> None:
    naive = 0
    while naive < min(len(a), len(b), most) and a[-1 - naive] == b[-1 - naive]:
        naive += 1
    assert _delta.common_suffix(a, b, min(most, len(a), len(b))) == naive


@given(texts, texts, texts, texts)
def test_common_parts_of_long_texts(shared: bytes, one: bytes, other: bytes, ending: bytes) -> None:
    a, b = shared * 3 + one + ending * 3, shared * 3 + other + ending * 3
    assert _delta.common_prefix(a, b) >= 3 * len(shared)
    assert _delta.common_suffix(a, b, min(len(a), len(b))) >= 3 * len(ending)


# Shapes.


@st.composite
def edited(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """A body and what an edit has made of it."""
    first, second, third = draw(texts), draw(texts), draw(texts)
    body = first + second + third
    return body, draw(
        st.sampled_from(
            [
                body + draw(texts),
                first + third,
                second + third + draw(texts),
                first + draw(texts) + third,
                draw(texts) + body,
                draw(texts),
                body[::-1],
                body,
                b"",
                draw(st.binary(max_size=3)) + second + draw(texts) + third,
            ]
        )
    )


@given(edited(), st.binary(max_size=5))
def test_a_delta_of_anything_gives_it_back(bodies: tuple[bytes, bytes], head: bytes) -> None:
    base, body = bodies
    made = delta_on(base, head, body)
    read = _delta.decode(_delta.encode(made))
    assert read == made
    assert made.body_length == len(body)
    assert made.new[: made.shape.head] == head
    assert _delta.rebuild(base, [read]) == body


@given(st.lists(edited(), min_size=1, max_size=4), st.data())
def test_a_chain_of_deltas_gives_the_last_value_back(some: list[tuple[bytes, bytes]], data: st.DataObject) -> None:
    bodies = [some[0][0], *(after for _, after in some)]
    if data.draw(st.booleans()):  # nothing but appends and cuts at the end, which are put together at once
        for n in range(1, len(bodies)):
            bodies[n] = bodies[n - 1][: data.draw(st.integers(0, len(bodies[n - 1])))] + bodies[n]
    chain = []
    for n, (base, body) in enumerate(itertools.pairwise(bodies)):
        prefix = _delta.common_prefix(base, body)
        if data.draw(st.booleans()):
            made = delta(Shape(0, prefix), body[prefix:], _delta.check_of(base[:prefix]))
        else:
            made = delta_on(base, b"", body)
        chain.append(made)
        assert _delta.rebuild(bodies[0], chain) == body, n


def test_an_append_keeps_all_of_the_base() -> None:
    base = bytes(range(256)) * 4
    assert _delta.shape_on(base, 3, base + b"new") == Shape(3, len(base))
    assert _delta.shape_on(base, 3, base) == Shape(3, len(base))
    assert Shape(3, len(base)).is_append


ITEMS = [ormsgpack.packb({"id": f"{n:04}", "text": f"message {n} " * 9}) for n in range(300)]


def kept(before: list[bytes], after: list[bytes]) -> int:
    """How much of a list stays when it becomes another one."""
    base, body = b"".join(before), b"".join(after)
    shape = _delta.shape_on(base, 3, body)
    assert _delta.rebuild(base, [delta_on(base, b"", body)]) == body
    return shape.keep + shape.suffix


@pytest.mark.parametrize(
    ("after", "changed"),
    [
        ([*ITEMS[:200], ITEMS[250]], 1),  # appended
        (ITEMS[:100], 0),  # cut at the end
        (ITEMS[50:200], 0),  # cut at the front
        ([*ITEMS[1:200], ITEMS[250]], 1),  # a window
        (ITEMS[10:200] + ITEMS[250:255], 5),
        ([*ITEMS[:100], ITEMS[250], *ITEMS[101:200]], 1),  # one edited
        (ITEMS[:100] + ITEMS[101:200], 0),  # one taken out
        ([*ITEMS[:100], ITEMS[250], *ITEMS[100:200]], 1),  # one put in
        ([ITEMS[250], *ITEMS[:200]], 1),  # one put first
    ],
)
def test_what_an_edit_leaves_alone_is_kept(after: list[bytes], changed: int) -> None:
    length = sum(map(len, after))
    most_new = (changed + 1) * max(map(len, ITEMS))
    assert kept(ITEMS[:200], after) >= length - most_new


@pytest.mark.parametrize("items", [1, 14, 15, 16, 40, 255, 65_534, 65_535])
def test_a_list_inside_of_something_else_grows(items: int) -> None:
    value = {"before": "x" * 500, "list": [n % 100 for n in range(items)], "after": "y" * 500}
    base = ormsgpack.packb(value)
    value["list"] = [*value["list"], 7]
    body = ormsgpack.packb(value)
    made = delta_on(base[1:], body[:1], body[1:])
    assert body[:1] + _delta.rebuild(base[1:], [made]) == body
    if items > 2 * _delta.PROBE_BYTES:
        assert len(made.new) < 600  # what stands before it at the most


def test_what_saves_less_than_a_quarter_is_not_worth_it() -> None:
    assert not _delta.is_worth_it(0, 100)
    for whole in (256, 1000, 4000, 10**6):
        limit = whole * 3 // 4 - _delta.WORTH_BYTES
        assert _delta.is_worth_it(limit, whole)
        assert not _delta.is_worth_it(limit + 1, whole)


# Records.


@given(
    st.builds(
        Delta,
        st.sampled_from([b"msgpack", b"msgpack+aes", b""]),
        st.integers(0, 2**31),
        st.sampled_from([b"1073741825", b"=" + b"0" * 31 + b"2.0.5"]),
        st.integers(0, 2**40),
        st.builds(Shape, *(st.integers(0, 2**31) for _ in Shape._fields)),
        st.integers(0, 2**32 - 1),
        st.binary(max_size=20) | st.just(b"a\x1fb\x1f\x1e\x1d"),
    )
)
def test_a_record_reads_as_it_was_written(made: Delta) -> None:
    record = _delta.encode(made)
    assert record[:2] == b"2d"
    assert _delta.decode(record) == made


def big(number: int, size: int) -> Delta:
    text = b"".join(b"%d, " % (n * n) for n in range(size // 4))[:size]
    return delta(Shape(3, 500), text, 7, number)


@pytest.mark.parametrize("size", [1023, 1024, 30_000, 256 * 1024 - 1, 256 * 1024])
@pytest.mark.parametrize("number", [1, 31, 32, 33, 64, 2048])
def test_the_new_bytes_of_greater_steps_are_compressed(number: int, size: int) -> None:
    made = big(number, size)
    record = _delta.encode(made)
    assert _delta.decode(record) == made
    is_compressed = number % 32 == 0 and size in range(1024, 256 * 1024)
    assert (len(record) < 0.8 * size) is is_compressed


def test_what_cannot_be_compressed_stays_as_it_is() -> None:
    made = delta(Shape(3, 500), random.Random(1).randbytes(5_000), 7, 32)
    record = _delta.encode(made)
    assert record.endswith(made.new)
    assert _delta.decode(record) == made


def test_compressed_bytes_that_were_tampered_with_are_a_broken_chain() -> None:
    made = big(32, 2_000)
    record = _delta.encode(made)
    place = len(record) - len(zlib.compress(made.new, 1))
    head, compressed = record[:place], record[place:]
    assert b",2000\x1f" in head
    endless = zlib.compress(bytes(10**8), 1)
    broken = [head + part for part in (compressed[:-1], compressed[:99], compressed[1:], b"", endless)]
    broken += [head.replace(b",2000\x1f", b",%d\x1f" % n) + compressed for n in (1, 1999, 2001, 10**9, -2000)]
    broken += [head + compressed[:at] + bytes([compressed[at] ^ 4]) + compressed[at + 1 :] for at in (0, 50, -5 % 300)]
    for each in broken:
        with pytest.raises(BrokenChainError):
            _delta.decode(each)


@given(edited(), st.integers(0, 60), st.sampled_from([b"", b"\x1f", b"-1", b"x", b"\xff" * 4, b"99999999999"]))
def test_a_record_that_was_tampered_with_is_a_broken_chain_or_a_value(
    bodies: tuple[bytes, bytes], at: int, put_in: bytes
) -> None:
    base, body = bodies
    record = _delta.encode(delta_on(base, b"\x91", body))
    for garbled in (record[:at], record[:at] + put_in + record[at:], record[:at] + put_in + record[at + 1 :]):
        try:
            built = _delta.rebuild(base, [_delta.decode(garbled)])
        except BrokenChainError:
            continue
        assert isinstance(built, bytes)


@given(st.binary(max_size=80))
def test_noise_is_a_broken_chain(noise: bytes) -> None:
    try:
        made = _delta.decode(b"2d" + noise)
    except BrokenChainError:
        return
    assert noise.count(b"\x1f") >= 6, made


@pytest.mark.parametrize(
    "shape", [Shape(1, 101), Shape(1, 50, 0, 51), Shape(1, 10, 101), Shape(0, 0, 101), Shape(1, 10, 0, 100, 3)]
)
def test_a_base_that_is_too_short_is_a_broken_chain(shape: Shape) -> None:
    with pytest.raises(BrokenChainError, match="a base has 100 bytes"):
        _delta.rebuild(b"x" * 100, [delta(shape, b"new and long", 0)])


@pytest.mark.parametrize("at", [0, 100, 255])
@pytest.mark.parametrize("is_append", [True, False])
def test_a_base_that_differs_beside_the_new_bytes_is_a_broken_chain(at: int, is_append: bool) -> None:
    base = bytes(range(256)) * 4
    body = base + b"new" * 9 if is_append else base[:512] + b"new" * 9 + base[512:]
    made = delta_on(base, b"", body)
    joint = len(base) if is_append else 512
    for place in {joint - 1 - at} | ({joint + at} - {len(base)} if not is_append else set()):
        other = base[:place] + bytes([base[place] ^ 1]) + base[place + 1 :]
        with pytest.raises(BrokenChainError, match="replaced"):
            _delta.rebuild(other, [made])


def test_each_joint_of_a_chain_of_appends_is_looked_at() -> None:
    bodies = [b"a" * 300, b"a" * 300 + b"b" * 300, b"a" * 300 + b"b" * 300 + b"c" * 300]
    chain = [delta_on(base, b"", body) for base, body in itertools.pairwise(bodies)]
    assert _delta.rebuild(bodies[0], chain) == bodies[-1]
    middle = chain[0]._replace(new=b"b" * 299 + b"x")
    for base, some in ((b"a" * 299 + b"x", chain), (bodies[0], [middle, chain[1]])):
        with pytest.raises(BrokenChainError, match="replaced"):
            _delta.rebuild(base, some)
