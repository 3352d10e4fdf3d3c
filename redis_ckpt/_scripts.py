"""The Lua scripts: loaded from `lua/`, and one function for each that builds its call.

A function's parameters are its script's ARGV; the header of the script says what they mean.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from redis_ckpt._flow import Call
from redis_ckpt._keys import MARK, NOTHING, RUN_TTL_MS, US, Range, ThreadKeys

NAMES = (
    "put",
    "put_writes",
    "get_tuple",
    "list_page",
    "history",
    "headers",
    "forget",
    "strays",
    "copy",
    "note_run",
    "thread_info",
)

NO_DEADLINE = 0
_bits = random.SystemRandom().getrandbits

_INCLUDE = re.compile(r"^--- @include (lib/\w+)$", re.M)
_COMMENT = re.compile(r"^\s*--.*\n", re.M)


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
    return Call(name, loaded.sha, loaded.text, tuple(keys), args)


def _new_epoch() -> int:
    """Where a thread's count of changes begins: random, so that a second life never repeats one of the first."""
    return _bits(52)


def put(
    keys: ThreadKeys,
    field: bytes,
    record: tuple[bytes, bytes, bytes],
    emptied: Sequence[bytes],
    quiet: Sequence[bytes],
    blobs: Iterable[tuple[bytes, bytes]],
    deadline: int = NO_DEADLINE,
) -> Call:
    """Reply: 1, or the list of the refs that are missing, or 0: the order is lost."""
    ns, _, checkpoint_id = field.partition(US)
    member = MARK + checkpoint_id + US + ns if ns else b""
    return _call(
        "put",
        keys,
        deadline,
        field,
        member,
        *record,
        _new_epoch(),
        len(emptied),
        len(quiet),
        *emptied,
        *quiet,
        *chain.from_iterable(blobs),
    )


def put_writes(keys: ThreadKeys, task: bytes, writes: Iterable[tuple[int, bytes]], deadline: int = NO_DEADLINE) -> Call:
    """Reply: how many writes were new."""
    flat: list[bytes | int] = [part for pair in writes for part in pair]
    return _call("put_writes", keys, deadline, task, *flat)


def get_tuple(keys: ThreadKeys, ns: bytes, checkpoint_id: bytes, deadline: int = NO_DEADLINE) -> Call:
    """Reply: None, or [field, record, intact, b, b blobs, then name and record of each write]."""
    return _call("get_tuple", keys, deadline, ns, checkpoint_id)


def list_page(keys: ThreadKeys, size: int, bare: bool, own: Range, others: Range = NOTHING) -> Call:
    """Reply: [intact, n, n items, then field and blob of each blob]."""
    return _call("list_page", keys, size, int(bare), *own, *others)


def history(
    keys: ThreadKeys, ns: bytes, checkpoint_id: bytes, first: bool, most: int, channels: Iterable[bytes]
) -> Call:
    """Reply: None, or [next, intact, then the ancestors]."""
    return _call("history", keys, ns, checkpoint_id, int(first), most, *channels)


def headers(keys: ThreadKeys, most: int, own: Range, others: Range = NOTHING) -> Call:
    """Reply: [epoch, orphans, root top, other top, then field and header of each checkpoint]."""
    return _call("headers", keys, most, *own, *others)


def forget(
    keys: ThreadKeys,
    epoch: bytes,
    last: bool,
    fields: Sequence[bytes],
    blobs: Iterable[bytes],
    deadline: int = NO_DEADLINE,
) -> Call:
    """Reply: the new epoch, or 0 if the thread has changed."""
    return _call("forget", keys, deadline, epoch, int(last), len(fields), *fields, *blobs)


def strays(keys: ThreadKeys, after: bytes, most: int) -> Call:
    """Reply: [where to go on or nothing, then the fields of checkpoints that have writes but no record]."""
    return _call("strays", keys, after, most)


def copy(source: ThreadKeys, target: ThreadKeys, deadline: int = NO_DEADLINE) -> Call:
    """Reply: 1 copied, 0 no source, -1 the target has checkpoints."""
    return _call("copy", (*source, *target), deadline, _new_epoch())


def note_run(run: bytes, thread: bytes, only_old: bool = False) -> Call:
    """Reply: 1 noted, 0 not."""
    return _call("note_run", (run,), thread, RUN_TTL_MS, int(only_old))


def thread_info(keys: ThreadKeys, after: bytes, most: int) -> Call:
    """Reply: [checkpoints, ms to live, root top, other top, then the namespaces]."""
    return _call("thread_info", keys, after, most)
