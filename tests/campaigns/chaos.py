"""A proxy that treats connections badly, at random: bytes come late and in pieces, or not at all, and links break."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
from collections import Counter
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from tests.savers import LoopThread
from tests.servers import HOST

CHUNK = 1 << 16


@dataclass(frozen=True)
class Odds:
    """How often what happens, for each piece of data that arrives."""

    split: float = 0.3
    delay: float = 0.1
    reset: float = 0.004
    close: float = 0.002
    silence: float = 0.0005
    longest_delay_seconds: float = 0.03


class Chaos:
    """`with Chaos(server.port, seed) as proxy:` then connect to `proxy.url`."""

    def __init__(self, upstream_port: int, seed: int, odds: Odds | None = None) -> None:
        self._upstream, self._luck, self._odds = upstream_port, random.Random(seed), odds or Odds()
        self._loop = LoopThread()
        self._links: set[asyncio.Task[None]] = set()
        self._server: Any = None
        self.counts: Counter[str] = Counter()

    @property
    def url(self) -> str:
        return f"redis://{HOST}:{self._server.sockets[0].getsockname()[1]}"

    def __enter__(self) -> Chaos:
        self._server = self._loop.run(asyncio.start_server(self._link, HOST, 0))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.run(self._end())
        self._loop.stop()

    async def _end(self) -> None:
        self._server.close()
        for link in list(self._links):
            link.cancel()
        await asyncio.gather(*self._links, return_exceptions=True)

    async def _link(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task: Any = asyncio.current_task()
        self._links.add(task)
        try:
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await self._join(reader, writer)
        finally:
            writer.close()
            self._links.discard(task)

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.counts["connections"] += 1
        server_reader, server_writer = await asyncio.open_connection(HOST, self._upstream)
        link = _Link()
        pumps = [
            asyncio.ensure_future(self._pump(link, reader, server_writer)),
            asyncio.ensure_future(self._pump(link, server_reader, writer)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            for each in (writer, server_writer):
                if link.is_reset:
                    _reset(each)
                each.close()

    async def _pump(self, link: _Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One direction, until it is over."""
        while data := await reader.read(CHUNK):
            if link.is_silent:
                continue
            fate = self._fate()
            if fate:
                self.counts[fate] += 1
            if fate in ("reset", "close"):
                writer.write(data[: self._luck.randrange(len(data) + 1)])
                link.is_reset = fate == "reset"
                return
            if fate == "silence":  # both ends believe that there still is a connection
                link.is_silent = True
                continue
            if fate == "delay":
                await asyncio.sleep(self._luck.uniform(0, self._odds.longest_delay_seconds))
            for piece in self._pieces(data) if fate == "split" else [data]:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)

    def _fate(self) -> str:
        odds, dice = self._odds, self._luck.random()
        for fate in ("reset", "close", "silence", "delay", "split"):
            dice -= getattr(odds, fate)
            if dice < 0:
                return fate
        return ""

    def _pieces(self, data: bytes) -> list[bytes]:
        at = sorted(self._luck.randrange(len(data) + 1) for _ in range(self._luck.randint(1, 4)))
        return [data[a:b] for a, b in zip([0, *at], [*at, len(data)], strict=True)]


@dataclass
class _Link:
    is_reset: bool = False
    is_silent: bool = False


def _reset(writer: asyncio.StreamWriter) -> None:
    """Let the end of a connection be a RST: the other side loses what it has not read."""
    sock = writer.get_extra_info("socket")
    if sock is not None:
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
