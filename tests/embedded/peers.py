"""Other processes that share an embedded server with a test, and what the tests look at."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import redis

from redis_ckpt import embedded
from redis_ckpt.embedded import EmbeddedServer

# The bare module: what a peer is to test needs nothing of the package around it, which is slow to import.
PEER = """
import os, sys, types
package = types.ModuleType("redis_ckpt")
package.__path__ = [os.path.dirname(sys.argv[1])]
sys.modules["redis_ckpt"] = package
from redis_ckpt import embedded
embedded.find_server_binary = lambda: sys.argv[2]
path = sys.argv[3] or None
for line in sys.stdin:
    value = None
    exec(eval(line))
    print(value, flush=True)
"""
OPEN = "server = embedded.EmbeddedServer.open(path); value = server.pid"
PING = "value = embedded.ask(server.socket_path, b'PING')"


class Peer:
    """Another process; `run` answers what the code assigned to `value`."""

    def __init__(self, path: Path | str) -> None:
        command = [sys.executable, "-c", PEER, embedded.__file__, embedded.find_server_binary(), str(path)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def send(self, code: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(repr(code) + "\n")
        self.process.stdin.flush()

    def answer(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def run(self, code: str) -> str:
        self.send(code)
        return self.answer()

    def kill(self) -> None:
        self.process.kill()
        with self.process:  # closes the pipes, which its own children may still hold, and waits
            pass


StartPeer: TypeAlias = Callable[[Path | str], Peer]


def call(server: EmbeddedServer, *command: str) -> Any:
    """One command through redis-py, with the URL that a saver gets."""
    with redis.Redis.from_url(server.url) as client:
        return client.execute_command(*command)


def setting(server: EmbeddedServer, name: str) -> str:
    with redis.Redis.from_url(server.url, decode_responses=True) as client:
        return str(client.config_get(name)[name])


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def is_free(lock: Path) -> bool:
    """Whether nobody holds a lock: no server lives, no keeper."""
    try:
        with lock.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (FileNotFoundError, BlockingIOError) as error:
        return isinstance(error, FileNotFoundError)
    return True


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def wait_for_end(pid: int) -> None:
    wait_until(lambda: not is_alive(pid))


def keeper_of(server: EmbeddedServer) -> int:
    return int(subprocess.run(["ps", "-o", "ppid=", "-p", str(server.pid)], capture_output=True, check=True).stdout)


def kill_keeper(server: EmbeddedServer) -> None:
    os.kill(keeper_of(server), signal.SIGKILL)
    wait_until(lambda: is_free(Path(server.directory, "lock.keeper")))


def wait_until_written(server: EmbeddedServer) -> None:
    """A write may be answered before it is in the file, while an earlier one is on its way to the disk."""
    wait_until(lambda: call(server, "INFO", "persistence")["aof_buffer_length"] == 0)


each_kind = pytest.mark.usefixtures("kind")
temporary_or_not = pytest.mark.parametrize("temporary", [True, False], ids=["temporary", "path"])
