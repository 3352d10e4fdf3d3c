"""What a server was asked while a block ran, as MONITOR tells it. Real servers only: fakeredis has no MONITOR."""

from __future__ import annotations

import contextlib
import re
import socket
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import redis

from tests.servers import HOST, Server

SECONDS = 10.0
_LINE = re.compile(rb'\+[0-9.]+ \[(\d+) ([^\]]*)\] (".*")')
_ARGUMENT = re.compile(rb'"((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(rb"\\(x[0-9a-fA-F]{2}|.)")
_NAMED = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"a": b"\a", b"b": b"\b"}


@dataclass(frozen=True)
class Line:
    """One command: who sent it (a script's own calls come from "lua"), on which database, with which arguments."""

    database: int
    source: str
    arguments: tuple[bytes, ...]

    @property
    def name(self) -> str:
        return self.arguments[0].decode().upper()

    @property
    def from_script(self) -> bool:
        return self.source == "lua"


class Lines(list[Line]):
    """The lines of a block, complete once it was left."""

    def sent(self) -> list[Line]:
        """What clients sent, without the calls that scripts made and without the greeting of a new connection."""
        return [line for line in self if not line.from_script and line.name not in GREETING]

    def names(self) -> list[str]:
        return [line.name for line in self.sent()]


GREETING = frozenset({"HELLO", "CLIENT", "AUTH", "SELECT"})
"""What redis-py itself sends when it opens a connection."""


def _unescape(argument: bytes) -> bytes:
    def one(match: re.Match[bytes]) -> bytes:
        code = match[1]
        return bytes([int(code[1:], 16)]) if code[:1] == b"x" else _NAMED.get(code, code)

    return _ESCAPE.sub(one, argument)


def parse(line: bytes) -> Line | None:
    """A line of MONITOR; None for anything else, such as the +OK before them."""
    match = _LINE.match(line)
    if match is None:
        return None
    arguments = tuple(_unescape(argument) for argument in _ARGUMENT.findall(match[3]))
    return Line(int(match[1]), match[2].decode(), arguments)


@contextlib.contextmanager
def monitor(server: Server) -> Iterator[Lines]:
    """Collect what the server is asked while the block runs."""
    lines = Lines()
    mark = uuid.uuid4().hex.encode()
    with (
        socket.create_connection((HOST, server.port), timeout=SECONDS) as sock,
        sock.makefile("rb") as stream,
    ):
        sock.sendall(b"MONITOR\r\n")
        assert stream.readline() == b"+OK\r\n"
        yield lines
        # The mark is the last command of the block: when it comes by, all before it have.
        with redis.Redis.from_url(server.url or "") as client:
            client.execute_command("ECHO", mark)
        while (line := parse(stream.readline())) is None or mark not in line.arguments:
            if line is not None:
                lines.append(line)
