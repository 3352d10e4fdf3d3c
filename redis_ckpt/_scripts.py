"""The Lua scripts: loaded from `lua/`, and one function for each that builds its call.

A function's parameters are its script's ARGV; the header of the script says what they mean.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files
from itertools import chain
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from redis_ckpt._expiry import FOREVER_MS
from redis_ckpt._flow import Call
from redis_ckpt._keys import GS, MARK, NOTHING, RS, RUN_TTL_MS, US, Range, ThreadKeys
from redis_ckpt._process import dice

NAMES = (
    "put",
    "put_writes",
    "get_tuple",
    "list_page",
    "history",
    "headers",
    "forget",
    "drop",
    "expire",
    "strays",
    "copy",
    "note_run",
    "thread_info",
    "sizes",
)


_INCLUDE = re.compile(r"^--- @include (lib/\w+)$", re.M)
_COMMENT = re.compile(r"^\s*--.*\n", re.M)


Mode: TypeAlias = Literal["count", "part", "last"]
"""What `forget` does: count only, remove, or remove what ends the plan."""


class Script(NamedTuple):
    """A script as the server gets it."""

    name: str
    text: str
    sha: str


@cache
def script(name: str) -> Script:
    """Load a script, paste what it includes and leave out whole-line comments."""
    text = _INCLUDE.sub(lambda m: _read(m[1]), _read(name))
    text = _COMMENT.sub("", text)
    return Script(name, text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


def _read(name: str) -> str:
    # in a wheel the scripts lie inside the package, in a checkout beside it
    inside = files("redis_ckpt").joinpath("lua", f"{name}.lua")
    if inside.is_file():
        return inside.read_text("utf-8")
    return (Path(__file__).parent.parent / "lua" / f"{name}.lua").read_text("utf-8")


def _call(name: str, keys: Iterable[bytes], *args: bytes | int) -> Call:
    loaded = script(name)
    words = tuple([arg if isinstance(arg, bytes) else b"%d" % arg for arg in args])
    return Call(name, loaded.sha, loaded.text, tuple(keys), words)


def _new_epoch() -> int:
    """Where a thread's count of changes begins: random, so that a second life never repeats one of the first."""
    return dice.getrandbits(52)


def put(
    keys: ThreadKeys,
    field: bytes,
    record: tuple[bytes, bytes, bytes],
    emptied: Sequence[bytes],
    quiet: Sequence[bytes],
    blobs: Iterable[tuple[bytes, bytes]],
    idle_ms: int = FOREVER_MS,
    counts: bool = False,
    guard: bytes = b"",
) -> Call:
    """Reply: how many checkpoints the namespace has; the refs that are missing; 0 order lost, -1 parent removed; the
    field of the newest, if the guard names another.
    """
    ns, _, checkpoint_id = field.partition(US)
    member = MARK + checkpoint_id + US + ns if ns else b""
    return _call(
        "put",
        keys,
        idle_ms,
        field,
        member,
        *record,
        _new_epoch(),
        len(emptied),
        len(quiet),
        int(counts),
        guard,
        *emptied,
        *quiet,
        *chain.from_iterable(blobs),
    )


def put_writes(keys: ThreadKeys, task: bytes, writes: Iterable[tuple[int, bytes]], idle_ms: int = FOREVER_MS) -> Call:
    """Reply: how many writes were new."""
    flat: list[bytes | int] = [part for pair in writes for part in pair]
    return _call("put_writes", keys, idle_ms, task, *flat)


def get_tuple(
    keys: ThreadKeys, ns: bytes, checkpoint_id: bytes, idle_ms: int | None = None, known: Iterable[bytes] = ()
) -> Call:
    """Reply: None, or [field, record, intact, newest, b, b blobs, d, d times ref and blob, then names and records]."""
    return _call("get_tuple", keys, _seen(idle_ms), ns, checkpoint_id, *known)


def _seen(idle_ms: int | None) -> bytes | int:
    return b"" if idle_ms is None else idle_ms


def list_page(
    keys: ThreadKeys, size: int, bare: bool, own: Range, others: Range = NOTHING, idle_ms: int | None = None
) -> Call:
    """Reply: [intact, n, n items, then field and blob of each blob]."""
    return _call("list_page", keys, _seen(idle_ms), size, int(bare), *own, *others)


def history(
    keys: ThreadKeys,
    ns: bytes,
    target: bytes,
    at: bytes,
    most: int,
    channels: Iterable[bytes],
    idle_ms: int | None = None,
) -> Call:
    """Reply: None, or [target, next, intact, then the ancestors]."""
    return _call("history", keys, _seen(idle_ms), ns, target, at, most, *channels)


def headers(keys: ThreadKeys, most: int, first: Range, more: Range = NOTHING) -> Call:
    """Reply: [epoch, orphans, own idle, writes, root top, other top, m, m times member and header, then bases]."""
    return _call("headers", keys, most, *first, *more)


def forget(
    keys: ThreadKeys,
    epoch: bytes,
    mode: Mode,
    groups: Iterable[tuple[bytes, Sequence[bytes], Sequence[bytes] | None]],
    idle_ms: int = FOREVER_MS,
) -> Call:
    """Reply: [epoch, groups done, checkpoints, writes, blobs, bytes], or 0 if the thread has changed."""
    flat: list[bytes | int] = []
    for checkpoint, blobs, refs in groups:
        if refs is None:
            flat += (checkpoint, len(blobs), *blobs)
        else:
            flat += (GS + checkpoint, len(blobs), RS.join(refs), *blobs)
    return _call("forget", keys, idle_ms, epoch, mode.encode(), *flat)


def drop(keys: ThreadKeys, epoch: bytes, idle: bytes, count: int) -> Call:
    """Reply: 1 removed, 0 the thread has changed."""
    return _call("drop", keys, epoch, idle, count)


def expire(keys: ThreadKeys, own: int | None, idle_ms: int = FOREVER_MS) -> Call:
    """Reply: 1, or 0 if the thread has no checkpoints. `own` is None to take it back."""
    return _call("expire", keys, b"" if own is None else own, idle_ms)


def strays(keys: ThreadKeys, after: bytes, most: int) -> Call:
    """Reply: [where to go on or nothing, then the fields of checkpoints that have writes but no record]."""
    return _call("strays", keys, after, most)


def copy(source: ThreadKeys, target: ThreadKeys, idle_ms: int = FOREVER_MS) -> Call:
    """Reply: 1 copied, 0 no source, -1 the target has checkpoints."""
    return _call("copy", (*source, *target), idle_ms, _new_epoch())


def note_run(run: bytes, thread: bytes, only_old: bool = False) -> Call:
    """Reply: 1 noted, 0 not."""
    return _call("note_run", (run,), thread, RUN_TTL_MS, int(only_old))


def thread_info(keys: ThreadKeys, after: bytes, most: int) -> Call:
    """Reply: [checkpoints, ms to live, own idle time, root top, other top, then the namespaces]."""
    return _call("thread_info", keys, after, most)


def sizes(keys: ThreadKeys, part: int, fields: Iterable[bytes]) -> Call:
    """Reply: a size in bytes for each field. `part` is the place of the hash among the keys, from 1."""
    return _call("sizes", keys, part, *fields)
