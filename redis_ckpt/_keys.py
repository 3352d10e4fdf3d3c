"""Names in Redis: keys, fields and members. The only module that builds or reads them.

`US` (0x1F) joins the parts of a name, `MARK` (0x1E) begins the members that order all namespaces together,
`GS` (0x1D) those of ancestors that no reader sees. All lie below every byte that a quoted part can hold, so
a shorter part sorts before its extensions, and no two names meet. `RS` and `GS` also part what stands in
records.
"""

from __future__ import annotations

import re
import secrets
from functools import lru_cache
from typing import NamedTuple

US = b"\x1f"
MARK = RS = b"\x1e"
GS = b"\x1d"

# `%` itself, what the layout of a key uses, blanks and control characters; the rest stays readable.
_UNSAFE = re.compile(rb"[\x00-\x20%:{}\x7f]")
_ESCAPES = {bytes([b]): b"%%%02X" % b for b in [*range(0x21), *b"%:{}", 0x7F]}
_ESCAPED = re.compile(rb"%([0-9A-F]{2})")
_GLOB = re.compile(rb"([*?\[\]\\])")

RUN_TTL_MS = 24 * 3600 * 1000  # a run key only makes `delete_for_runs` quicker; a day covers recent runs


# Every call names the same channels again: names are made once.
_remembered = lru_cache(maxsize=8192)


@_remembered
def quote(text: str) -> bytes:
    """The part `text` inside a name: injective, and readable in redis-cli."""
    # surrogatepass: ids may be any Python text, lone surrogates too
    raw = text.encode("utf-8", "surrogatepass")
    return _UNSAFE.sub(lambda m: _ESCAPES[m[0]], raw) if _UNSAFE.search(raw) else raw


@_remembered
def unquote(part: bytes) -> str:
    """The inverse of `quote`."""
    if b"%" in part:
        part = _ESCAPED.sub(lambda m: bytes([int(m[1], 16)]), part)
    return part.decode("utf-8", "surrogatepass")


class ThreadKeys(NamedTuple):
    """The five keys of a thread, in the order in which every script takes them."""

    checkpoints: bytes
    blobs: bytes
    writes: bytes
    order: bytes
    pending: bytes


def thread_keys(prefix: bytes, thread_id: str) -> ThreadKeys:
    """All keys of a thread. They share the hash tag `{T}`, so one slot of a cluster holds them."""
    head = b"%b:{%b}:" % (prefix, quote(thread_id))
    return ThreadKeys(head + b"checkpoints", head + b"blobs", head + b"writes", head + b"order", head + b"pending")


def staging_keys(keys: ThreadKeys) -> ThreadKeys:
    """Five keys in the slot of a thread that are no thread's: where a copy is put together."""
    name = secrets.token_hex(8).encode()
    return ThreadKeys(*(b"%b:copying:%b:%b" % (*key.rsplit(b":", 1)[:1], name, key.rsplit(b":", 1)[1]) for key in keys))


def run_key(prefix: bytes, run_id: str) -> bytes:
    """The set of the (quoted) ids of the threads that a run has touched."""
    return b"%b:run:{%b}" % (prefix, quote(run_id))


def orders_pattern(prefix: bytes) -> bytes:
    """The SCAN pattern that finds the `order` key of every thread: one key a thread with checkpoints."""
    return _GLOB.sub(rb"\\\1", prefix) + b":{*}:order"


def threads_pattern(prefix: bytes) -> bytes:
    """The SCAN pattern that finds the `order` and `pending` keys: of threads too that have only writes."""
    return _GLOB.sub(rb"\\\1", prefix) + b":{*}:[op]*"


def thread_of_key(prefix: bytes, key: bytes) -> str | None:
    """The thread of a key that a pattern found; None if another prefix's key matched the glob."""
    head = prefix + b":{"
    part, brace, tail = key[len(head) :].partition(b"}:")
    if not (key.startswith(head) and brace and tail in (b"order", b"pending")) or b":" in part:
        return None
    try:
        return unquote(part)
    except UnicodeDecodeError:
        return None


def check_prefix(prefix: str) -> bytes:
    """The prefix as bytes.

    Raises:
        ValueError: It is empty, or holds braces or blanks: braces would take the hash tag's place.
    """
    if not isinstance(prefix, str) or not prefix or re.search(r"[{}\s\x00-\x1f]", prefix):
        raise ValueError(f"prefix must be text without braces, blanks and control characters, not {prefix!r}")
    return prefix.encode("utf-8")


def checkpoint_field(ns: str, checkpoint_id: str) -> bytes:
    """`ns US id`: the field in `checkpoints` and the member in `order`."""
    return quote(ns) + US + quote(checkpoint_id)


def split_checkpoint_field(field: bytes) -> tuple[str, str]:
    """Namespace and id of a `checkpoint_field`."""
    ns, checkpoint_id = field.split(US)
    return unquote(ns), unquote(checkpoint_id)


def version_text(version: str | int | float) -> bytes:
    """A version as part of a name. Numbers that are equal share it, as they share a key in a dict."""
    if isinstance(version, str):
        return b"=" + quote(version)
    if isinstance(version, float) and not version.is_integer():
        return repr(version).encode()
    return b"%d" % version


@_remembered
def blob_ref(channel: str, version: str | int | float) -> bytes:
    """`channel US version`: a blob's name within its namespace, as the headers of records list it."""
    return quote(channel) + US + version_text(version)


@_remembered
def channel_of(ref: bytes) -> str:
    """The channel of a `blob_ref`."""
    return unquote(ref.partition(US)[0])


class Range(NamedTuple):
    """A ZRANGEBYLEX range over `order`, with the bounds' own `[`, `(`, `-` or `+`."""

    low: bytes
    high: bytes


NOTHING = Range(b"(+", b"(+")  # both bounds are the text "+", excluded: an empty range


def listing_ranges(ns: str | None, below: tuple[str, str] | None, exact_id: str | None) -> tuple[Range, Range]:
    """The ranges of `order` that a `list` reads: the members `ns US id`, and those of all namespaces.

    Args:
        ns: One namespace, or None for all: then the first range is the root's, the second all others'.
        below: Only checkpoints before this (id, ns) in the order of the listing, or None.
        exact_id: Only this checkpoint id, or None.
    """
    own = quote(ns or "") + US
    low_own, high_own = b"[" + own, b"(" + own + b"\xff"
    low_all, high_all = b"[" + MARK, b"(" + US
    if below is not None:
        below_id, below_ns = quote(below[0]), quote(below[1])
        # of equal ids the root's comes last in a listing of all, so it is still to come
        high_own = (b"[" if ns is None and below_ns else b"(") + own + below_id
        high_all = b"(" + MARK + below_id + US + below_ns
    if exact_id is not None:
        name = quote(exact_id)
        low_own, low_all = b"[" + own + name, b"[" + MARK + name + US
        high_own = min(high_own, b"[" + own + name, key=_upper_bound)
        high_all = min(high_all, b"(" + MARK + name + US + b"\xff", key=_upper_bound)
    return Range(low_own, high_own), Range(low_all, high_all) if ns is None else NOTHING


def _upper_bound(bound: bytes) -> tuple[bytes, bool]:
    return bound[1:], bound[:1] == b"["


def field_of_member(member: bytes) -> bytes:
    """`ns US id` of any member of `order`."""
    if member.startswith(GS):
        return member[1:]
    if member.startswith(MARK):
        checkpoint_id, _, ns = member[1:].partition(US)
        return ns + US + checkpoint_id
    return member


def plain_range(after: bytes) -> Range:
    """All members `ns US id`, by namespace, behind the member `after` (b"" begins)."""
    return Range(b"(" + after if after else b"[" + US, b"+")


def ancestors_range(after: bytes) -> Range:
    """All members `GS ns US id`, behind the member `after` (b"" begins)."""
    return Range(b"(" + after if after else b"[" + GS, b"(" + MARK)


def newer_ranges(greatest_id: bytes) -> tuple[Range, Range]:
    """The members of checkpoints with ids (quoted) above `greatest_id`: the root's, and all others'."""
    return (
        Range(b"(" + US + greatest_id, b"(" + US + b"\xff"),
        Range(b"(" + MARK + greatest_id + US + b"\xff", b"(" + US),
    )
