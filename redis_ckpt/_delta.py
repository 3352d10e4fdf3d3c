r"""Deltas: a value stored as what it adds to, or changes in, an earlier version of its channel.

Agents keep lists that grow at the end; stored whole at each version, such a list takes the square of its length. A
delta holds what is new and says which bytes of its *base*, an earlier version of the channel, stand before and behind
it. Everything here works on the serialiser's bytes and knows nothing of values.

    value = head  lead  base[start : start + keep]  middle  base[-suffix:]

The head is what msgpack writes before the items of a list, a map or a text: their number, which changes with every
append. `base` above is the base behind its own head, its *body*. An append has neither lead nor start nor suffix; a
list that lost its first items has a start, an edit in the middle a suffix; with the lead a list inside of something
else can grow.

Rule 1: the base of number n is number n - s, s being the greatest of STEPS that divides n, and number 0 is whole. So
        a value is at most 31 small steps and 63 of each greater kind away from a whole one, however long the chat.
        Each kind of step stores all bytes once more: fewer links would cost more bytes. (Measured 2026-11-30 on chats
        of 200 and 1,000 turns: with steps of 1, 16, 256 a fifth more is stored than with these.)
Rule 2: a base has a smaller version than what is built on it: chains end.
Rule 3: what does not save a quarter is stored whole, and numbers begin anew.
Rule 4: the new bytes of the greater steps, which repeat those of smaller ones, are compressed. (Measured 2026-12-01: a
        tenth less is stored of a chat; a read by a process that knows nothing of it takes a fifth longer.)
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

from redis_ckpt._keys import US

STEPS = (1, 32, 2048, 131072)
MOST_LINKS = 1000  # a chain with more bites its tail
CHECKED_BYTES = 256  # of what a base must have on either side of the new bytes, as a sum in the delta
PROBE_BYTES = 64  # how much must be equal for a place in the base to be looked at
COUNT_BYTES = 8  # room for a number of items that has changed inside of a value
COMPRESSED_BYTES = range(1024, 256 * 1024)  # of how many new bytes: more would hold up an event loop
WORTH_BYTES = 128  # a delta's own head, its name and the look at its base cost about as much

cache_of_numbers = lru_cache(maxsize=4096)

_HEADS = dict.fromkeys(range(0x80, 0xC0), 1)  # short maps, lists and texts
_HEADS |= {0xC4: 2, 0xC5: 3, 0xC6: 5, 0xD9: 2, 0xDA: 3, 0xDB: 5}  # bytes, texts
_HEADS |= {0xC7: 3, 0xC8: 4, 0xC9: 6}  # extensions
_HEADS |= {0xDC: 3, 0xDD: 5, 0xDE: 3, 0xDF: 5}  # lists, maps


class BrokenChainError(Exception):
    """The base of a delta is not what the delta was built on."""


class Shape(NamedTuple):
    """Which bytes of the base a value keeps: see the top. `head` and `lead` are lengths in the new bytes."""

    head: int
    keep: int
    suffix: int = 0
    start: int = 0
    lead: int = 0

    @property
    def kept_in_front(self) -> int:
        """How many bytes both bodies begin with."""
        return 0 if self.start or self.lead else self.keep

    @property
    def is_append(self) -> bool:
        """Whether what is kept stands at the beginning of both, and nothing else is kept."""
        return not (self.suffix or self.start or self.lead)


class Delta(NamedTuple):
    """A delta as it is stored: `2d` kind US number US base US size US shape US check.own US bytes.

    Where the bytes are compressed, their length before that stands behind the shape, as a sixth number. `own` is the
    sum of all that stands before `check`, and of the bytes as they are stored; the first deltas have none.
    """

    kind: bytes  # the serialiser's type, quoted
    number: int
    base: bytes  # the version of the base, as text
    size: int  # of the base's record: `put` refuses a base that was replaced
    shape: Shape
    check: int  # over what is kept, where it meets the new bytes
    new: bytes  # head, lead and middle

    @property
    def body_length(self) -> int:
        """How long the value is without its head."""
        return len(self.new) - self.shape.head + self.shape.keep + self.shape.suffix


def encode(delta: Delta) -> bytes:
    """The record of a delta."""
    shape, new = [*delta.shape, 0], delta.new
    if delta.number % STEPS[1] == 0 and len(new) in COMPRESSED_BYTES:
        compressed = zlib.compress(new, 1)
        if len(compressed) < len(new):
            shape[-1], new = len(new), compressed
    while shape[-1] == 0 and len(shape) > 2:
        shape.pop()
    numbers = b",".join(b"%d" % n for n in shape)
    head = b"2d%b\x1f%d\x1f%b\x1f%d\x1f%b\x1f" % (delta.kind, delta.number, delta.base, delta.size, numbers)
    return b"%b%d.%d\x1f%b" % (head, delta.check, zlib.crc32(new, zlib.crc32(head)), new)


def decode(record: bytes) -> Delta:
    """The delta in a record.

    Raises:
        BrokenChainError: It cannot be read.
    """
    try:
        kind, number, base, size, numbers, checks, new = record[2:].split(US, 6)
        check, has_own, own = checks.partition(b".")
        before_checks = record[: len(record) - len(new) - len(checks) - 1]
        if has_own and zlib.crc32(new, zlib.crc32(before_checks)) != int(own):
            raise BrokenChainError("a delta was changed")
        shape = [int(n) for n in numbers.split(b",")]
        if len(shape) > len(Shape._fields):
            new = _decompressed(new, shape.pop())
        return Delta(kind, int(number), base, int(size), Shape(*shape), int(check), new)
    except (ValueError, TypeError, zlib.error):
        raise BrokenChainError("a delta cannot be read") from None


def _decompressed(new: bytes, length: int) -> bytes:
    if length not in COMPRESSED_BYTES:
        raise ValueError(length)
    made = zlib.decompressobj()
    found = made.decompress(new, length + 1)  # no bytes without end, whatever was put in its place
    if len(found) != length or not made.eof:
        raise ValueError(len(found))
    return found


def head_length(kind: bytes, data: bytes) -> int:
    """How many bytes stand before the items of a value."""
    return _HEADS.get(data[0], 0) if kind == b"msgpack" and data else 0


@cache_of_numbers
def base_number(number: int) -> int:
    """The number of the base of a number: see rule 1."""
    return number - max(step for step in STEPS if number % step == 0)


@cache_of_numbers
def floors(number: int) -> frozenset[int]:
    """The smaller numbers that can be the base of later ones."""
    return frozenset(number - number % step for step in STEPS[1:]) - {number}


def common_prefix(a: bytes, b: bytes, at: int = 0) -> int:
    """How many bytes of `a` from `at` on are those that `b` begins with."""
    most = min(len(a) - at, len(b))
    return _longest(most, lambda low, high: a[at + low : at + high] == b[low:high])


def common_suffix(a: bytes, b: bytes, most: int) -> int:
    """How many of the last bytes are the same, up to `most`."""
    return _longest(most, lambda low, high: a[len(a) - high : len(a) - low] == b[len(b) - high : len(b) - low])


def _longest(most: int, is_same: Callable[[int, int], bool]) -> int:
    """How far two texts are the same, where one can ask that of any slice: in growing steps, then by halves.

    Slices are compared in C.
    """
    low, step = 0, PROBE_BYTES
    while (high := min(low + step, most)) > low and is_same(low, high):
        low, step = high, 2 * step
    while low < high:
        middle = (low + high + 1) // 2
        if is_same(low, middle):
            low = middle
        else:
            high = middle - 1
    return low


def shape_on(base: bytes, head: int, body: bytes) -> Shape:
    """How to build a value on a base: the bodies of both, and the length of the new head."""
    if body.startswith(base):
        return Shape(head, len(base))
    prefix = common_prefix(base, body)
    suffix = common_suffix(base, body, min(len(base), len(body)) - prefix)
    best = Shape(head, prefix, suffix)
    # the first items went: the beginning is found further on. Or a number inside has changed: it goes on behind that.
    for lead in (0, prefix + COUNT_BYTES):
        probe = body[lead : lead + PROBE_BYTES]
        at = base.find(probe, prefix + 1 if lead == 0 else prefix) if len(probe) == PROBE_BYTES else -1
        if at >= 0:
            keep = common_prefix(base, body[lead:], at)
            suffix = common_suffix(base, body, min(len(base) - at, len(body) - lead) - keep)
            best = max(best, Shape(head, keep, suffix, at, lead), key=_kept)
    return best


def _kept(shape: Shape) -> int:
    return shape.keep + shape.suffix


def check_of(kept: bytes, suffix: bytes = b"") -> int:
    """The sum that a delta holds of what it keeps: of the bytes that are next to the new ones."""
    return zlib.crc32(suffix[:CHECKED_BYTES], zlib.crc32(kept[-CHECKED_BYTES:]))


def is_worth_it(new: int, whole: int) -> bool:
    """Whether a delta of so many new bytes is stored in place of the whole value."""
    return 4 * (new + WORTH_BYTES) <= 3 * whole


def rebuild(base: bytes, deltas: Sequence[Delta]) -> bytes:
    """The body of a value.

    Args:
        base: The body of a whole value, or of one that is known.
        deltas: From the one that is built on it to the one that is wanted.

    Raises:
        BrokenChainError: They do not fit together.
    """
    length = len(base)
    for delta in deltas:
        shape = delta.shape
        if max(shape.start + shape.keep, shape.suffix) > length:
            raise BrokenChainError(f"a base has {length} bytes, its delta wants {shape}")
        length = delta.body_length
    if all(delta.shape.is_append for delta in deltas):
        return _joined(base, deltas)
    body = base
    for delta in deltas:
        body = _built(body, delta)
    return body


def _joined(base: bytes, deltas: Sequence[Delta]) -> bytes:
    """The body of appends on appends, put together at once and not length by length."""
    parts, needed = [], deltas[-1].body_length
    joints = []
    for delta in reversed(deltas):
        keep, head = delta.shape.keep, delta.shape.head
        if keep < needed:
            parts.append(delta.new[head : head + needed - keep])
            joints.append(delta)
            needed = keep
    parts.append(base[:needed])
    body = b"".join(reversed(parts))
    for delta in joints:
        if check_of(body[max(0, delta.shape.keep - CHECKED_BYTES) : delta.shape.keep]) != delta.check:
            raise BrokenChainError("a base was replaced")
    return body


def _built(base: bytes, delta: Delta) -> bytes:
    head, keep, suffix, start, lead = delta.shape
    kept, rest = base[start : start + keep], base[len(base) - suffix :]
    if check_of(kept, rest) != delta.check:
        raise BrokenChainError("a base was replaced")
    return b"".join((delta.new[head : head + lead], kept, delta.new[head + lead :], rest))
