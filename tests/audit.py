"""The key audit: what may be left in a server after a test, and nothing else.

`TABLE` says what `lua/README.md` says (a test compares the two). `audit` reads every key of every database and
answers one sentence for each thing that is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import redis

from tests.servers import Server

US = b"\x1f"
MARK = b"\x1e"
GS = b"\x1d"
RECORD_VERSION, DELTA_VERSION = b"1", b"2"
RUN_SECONDS = 24 * 3600
DEADLINE_MS = 5
"""How far apart the deadlines of a thread's keys may seem, which are one: asking for them takes a moment."""
TRIES = 5

_PART = r"(?:[^\x00-\x20%:{}\x7f]|%[0-9A-F]{2})"
"""One byte of a quoted part, or its percent form."""

_ANY, _SOME = f"{_PART}*", f"{_PART}+"
_WORDS = {
    "<prefix>": r"[^{}\s]+",
    "{T}": rf"\{{{_SOME}\}}",
    "{R}": rf"\{{{_SOME}\}}",
    "T": _SOME,
    "US": "\x1f",
    "MARK": "\x1e",
    "GS": "\x1d",
    "ns": _ANY,
    "id": _SOME,
    "channel": _ANY,
    "task": _ANY,
    "version": rf"(?:={_ANY}|-?[0-9][0-9.e+-]*)",
    "idx": "-?[0-9]+",
}
"""What the words of the table stand for; every other word stands for itself."""


def _pattern(text: str) -> re.Pattern[bytes]:
    words = re.findall(r"<prefix>|\{\w\}|\w+|:", text)
    return re.compile("".join(_WORDS.get(word, word) for word in words).encode("latin-1"), re.DOTALL)


class Row:
    """One row of the data model: the key, its type and its entries, in the words of the README."""

    def __init__(self, key: str, kind: str, *entries: str) -> None:
        self.key, self.kind, self.entries = key, kind, entries
        self._key = _pattern(key)
        self._entries = [_pattern(entry) for entry in entries]

    def fits(self, key: bytes) -> bool:
        return self._key.fullmatch(key) is not None

    def has(self, entry: bytes) -> bool:
        return any(pattern.fullmatch(entry) for pattern in self._entries)


RUN = Row("<prefix>:run:{R}", "set", "T")

TABLE = (
    Row("<prefix>:{T}:checkpoints", "hash", "ns US id", "epoch", "orphans", "idle"),
    Row("<prefix>:{T}:blobs", "hash", "ns US channel US version", "GS ns US channel US version"),
    Row("<prefix>:{T}:writes", "hash", "ns US id US task US idx"),
    Row("<prefix>:{T}:order", "zset", "ns US id", "MARK id US ns", "GS ns US id"),
    Row("<prefix>:{T}:pending", "zset", "ns US id US task US idx"),
    RUN,
)
PARTS = ("checkpoints", "blobs", "writes", "order", "pending")


class Thread(NamedTuple):
    """What one thread's five keys hold; a key that is absent is empty."""

    name: str
    checkpoints: dict[bytes, bytes]
    blobs: dict[bytes, bytes]
    writes: dict[bytes, bytes]
    order: dict[bytes, float]
    pending: dict[bytes, float]


def row_of(key: bytes) -> Row | None:
    """The row that a key belongs to."""
    return next((row for row in TABLE if row.fits(key)), None)


def audit(server: Server) -> list[str]:
    """Everything that is wrong with what the server holds."""
    wrong: list[str] = []
    for number in server.databases():
        client = server.raw(db=number)
        threads: dict[bytes, dict[str, Any]] = {}
        for key in client.scan_iter(match="*", count=1000):
            row = row_of(key)
            if row is None:
                wrong.append(f"{key!r} matches no row of the table")
                continue
            found = client.type(key)
            if found != row.kind.encode():
                wrong.append(f"{key!r} is a {found!r}, not a {row.kind}")
                continue
            entries = _read(client, key, row)
            wrong += [f"{key!r} has the odd entry {e!r}" for e in entries if not row.has(e)]
            if row is RUN:
                wrong += _check_run(client, key)
            else:
                thread, _, part = key.rpartition(b":")
                threads.setdefault(thread, {})[part.decode()] = entries
        for name, parts in threads.items():
            wrong += _check_thread(Thread(repr(name), *(parts.get(part, {}) for part in PARTS)))
            wrong += _check_deadlines(client, name)
    return wrong


def dump(client: redis.Redis) -> dict[bytes, dict[bytes, Any]]:
    """All keys of the data model that one database holds, with their entries."""
    rows = {key: row_of(key) for key in client.scan_iter(match="*", count=1000)}
    return {key: _read(client, key, row) for key, row in rows.items() if row is not None}


def deadlines(client: redis.Redis, thread: bytes) -> dict[str, int]:
    """The ms until the deadline of those of a thread's keys that exist, asked for in one go; -1 is none."""
    for _ in range(TRIES):  # a server that was interrupted between two answers is asked again
        with client.pipeline() as pipe:
            for part in PARTS:
                pipe.pttl(thread + b":" + part.encode())
            answers: list[int] = pipe.execute()
        found = {part: ms for part, ms in zip(PARTS, answers, strict=True) if ms != -2}
        if agree(found):
            break
    return found


def agree(found: dict[str, int]) -> bool:
    """Whether all of these keys have the same deadline, or none has one."""
    low, high = min(found.values(), default=-1), max(found.values(), default=-1)
    return high - low <= DEADLINE_MS and (low >= 0 or high == -1)


def _read(client: redis.Redis, key: bytes, row: Row) -> dict[bytes, Any]:
    reader: Any = client  # bytes come back, which redis-py's types do not know
    read: dict[str, Callable[[], Any]] = {
        "hash": lambda: reader.hgetall(key),
        "zset": lambda: dict(reader.zrange(key, 0, -1, withscores=True)),
        "set": lambda: dict.fromkeys(reader.smembers(key), b""),
    }
    entries: dict[bytes, Any] = read[row.kind]()
    return entries


def _check_run(client: redis.Redis, key: bytes) -> Iterable[str]:
    seconds = int(client.ttl(key))
    if not 0 < seconds <= RUN_SECONDS:
        yield f"{key!r} should expire within a day, its TTL is {seconds}"


def _check_thread(thread: Thread) -> Iterable[str]:
    yield from _check_records(thread)
    yield from _check_deltas(thread)
    yield from _check_order(thread)
    if thread.writes.keys() != thread.pending.keys():
        odd = sorted(thread.writes.keys() ^ thread.pending.keys())
        yield f"{thread.name}: writes and pending differ in {odd!r}"
    for part in ("order", "pending"):
        scored = {member: score for member, score in getattr(thread, part).items() if score != 0}
        if scored:
            yield f"{thread.name}:{part} has scores other than 0: {scored!r}"


def _check_deadlines(client: redis.Redis, thread: bytes) -> Iterable[str]:
    if not agree(found := deadlines(client, thread)):
        yield f"{thread!r}: the deadlines of its keys differ: {found!r}"


def _check_records(thread: Thread) -> Iterable[str]:
    idle = thread.checkpoints.get(b"idle", b"0")
    if re.fullmatch(rb"[0-9]+", idle) is None:
        yield f"{thread.name}: its own idle time is no number of ms: {idle!r}"
    for part in ("checkpoints", "blobs", "writes"):
        for field, record in getattr(thread, part).items():
            if US in field and record[:1] != (DELTA_VERSION if field.startswith(GS) else RECORD_VERSION):
                yield f"{thread.name}:{part} {field!r} does not begin with the record version: {record[:8]!r}"


def _check_deltas(thread: Thread) -> Iterable[str]:
    for field, record in thread.blobs.items():
        if not field.startswith(GS):
            continue
        name, base = field[1:], b"".join(field[1:].rpartition(US)[:2]) + record.split(US)[2]
        if name in thread.blobs:
            yield f"{thread.name}: {name!r} is stored whole and as a delta"
        if base not in thread.blobs and GS + base not in thread.blobs:
            yield f"{thread.name}: the base {base!r} of {name!r} is gone"


def _check_order(thread: Thread) -> Iterable[str]:
    fields = {field for field in thread.checkpoints if US in field}
    members = {member for member in thread.order if not member.startswith((MARK, GS))}
    ancestors = {member[1:] for member in thread.order if member.startswith(GS)}
    if both := members & ancestors:
        yield f"{thread.name}: {sorted(both)!r} are checkpoints and ancestors"
    if fields != members | ancestors:
        yield f"{thread.name}: checkpoints and order differ in {sorted(fields ^ (members | ancestors))!r}"
    index = {member for member in thread.order if member.startswith(MARK)}
    expected = {MARK + name + US + ns for ns, name in (f.split(US) for f in members) if ns}
    if index != expected:
        yield f"{thread.name}: the index over all namespaces differs in {sorted(index ^ expected)!r}"
