"""How an embedded server lives and ends: real binaries, real processes, real signals.

All that a test makes lies below `home`, whose fixture asserts afterwards that nothing is left running there.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
import socket
import stat
import sys
from pathlib import Path

import pytest

from redis_ckpt.embedded import EmbeddedServer
from tests.embedded.peers import (
    OPEN,
    PING,
    StartPeer,
    call,
    each_kind,
    is_alive,
    is_free,
    keeper_of,
    kill_keeper,
    setting,
    temporary_or_not,
    wait_for_end,
    wait_until,
    wait_until_written,
)


@each_kind
def test_temporary_server_is_private_and_goes_with_its_directory() -> None:
    with EmbeddedServer.open() as server:
        directory = Path(server.directory)
        assert stat.S_IMODE(directory.stat().st_mode) == stat.S_IMODE(os.stat(server.socket_path).st_mode) == 0o700
        assert [setting(server, name) for name in ("port", "save", "appendonly")] == ["0", "", "no"]
        call(server, "SET", "k", "v")
        with EmbeddedServer.open() as other:
            assert call(other, "GET", "k") is None
        assert server.temporary
        assert "open" in repr(server)
    assert not is_alive(server.pid)
    assert not directory.exists()
    assert "closed" in repr(server)


@each_kind
def test_data_is_there_after_close_and_open(home: Path) -> None:
    path = home / "made" / "with parents"
    server = EmbeddedServer.open(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    kept = [setting(server, name) for name in ("port", "save", "appendonly", "appendfsync")]
    assert kept == ["0", "", "yes", "everysec"]
    call(server, "SET", "k", "v")
    server.close()
    server.close()
    assert not is_alive(server.pid)
    for _ in range(2):
        with EmbeddedServer.open(str(path)) as server:
            assert call(server, "GET", "k") == b"v"


NAMES = ["a b", "ünï→☃", "q?#%41&+;\"'\\", "x" * 200, "x" * 60 + "/" + "ü" * 50]
NAMES += [] if sys.platform == "darwin" else [os.fsdecode(b"raw\xff")]


@each_kind
@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_any_name_works_and_others_find_the_server(
    home: Path, peer: StartPeer, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    with EmbeddedServer.open(home / name) as server:
        call(server, "SET", "k", "v")
        monkeypatch.setenv("TMPDIR", str(home))  # where a peer would look for a socket if it had to guess
        joiner = peer(home / name)
        assert joiner.run(OPEN) == str(server.pid)
        joiner.kill()
    (home / "alias").symlink_to(home / name)
    with EmbeddedServer.open(home / "alias") as server:
        assert call(server, "GET", "k") == b"v"


@each_kind
@pytest.mark.parametrize("killed", [True, False], ids=["killed", "closed"])
def test_server_lives_as_long_as_one_process_has_it_open(home: Path, peer: StartPeer, killed: bool) -> None:
    owner = peer(home / "d")
    pid = owner.run(OPEN)
    with EmbeddedServer.open(home / "d") as server:
        assert str(server.pid) == pid
        if killed:
            owner.kill()
        else:
            owner.run("server.close()")
        for _ in range(20):
            call(server, "INCR", "n")
        with EmbeddedServer.open(home / "d") as again:
            assert str(again.pid) == pid
    assert not is_alive(server.pid)


@each_kind
def test_racing_processes_get_one_server(home: Path, peer: StartPeer) -> None:
    peers = [peer(home / "d") for _ in range(6)]
    for one in peers:
        one.run("pass")
    for one in peers:
        one.send(OPEN)
    (pid,) = {int(one.answer()) for one in peers}
    for number, one in enumerate(peers):
        assert one.run(PING) == "b'+PONG'"
        if number % 2:
            one.run("server.close()")
        else:
            one.kill()
    wait_for_end(pid)


@each_kind
def test_no_write_is_lost_while_processes_come_and_go(home: Path, peer: StartPeer) -> None:
    peers = [peer(home / "d") for _ in range(3)]
    answers = []
    for _ in range(8):
        for one in peers:
            one.send(OPEN + "; value = embedded.ask(server.socket_path, b'INCR n').decode(); server.close()")
        answers += [int(one.answer()[1:]) for one in peers]
    assert sorted(answers) == list(range(1, 25))


@each_kind
@temporary_or_not
def test_nothing_outlives_a_killed_owner_but_the_data(home: Path, peer: StartPeer, temporary: bool) -> None:
    owner = peer("" if temporary else home / "d")
    pid = int(owner.run(OPEN))
    directory = owner.run("embedded.ask(server.socket_path, b'SET k v'); value = server.directory")
    owner.kill()
    wait_for_end(pid)
    if temporary:
        wait_until(lambda: not os.path.exists(directory))
    else:
        with EmbeddedServer.open(home / "d") as server:
            assert call(server, "GET", "k") == b"v"


def test_process_that_never_closes_leaves_nothing(peer: StartPeer) -> None:
    owner = peer("")
    pid = int(owner.run(OPEN))
    # An exit handler still finds the server, though it was there before.
    owner.run("import atexit; atexit.register(lambda: print(embedded.ask(server.socket_path, b'PING')))")
    assert owner.process.communicate()[0] == "b'+PONG'\n"
    wait_for_end(pid)
    server = EmbeddedServer.open()
    pid = server.pid
    del server
    gc.collect()
    wait_for_end(pid)


@each_kind
def test_signal_to_a_whole_service_leaves_the_server_to_its_users(home: Path) -> None:
    with EmbeddedServer.open(home / "d") as server:
        for pid in (server.pid, keeper_of(server)):
            os.kill(pid, signal.SIGTERM)
            os.kill(pid, signal.SIGHUP)
        for _ in range(20):
            call(server, "INCR", "n")
        assert is_alive(keeper_of(server))
    assert not is_alive(server.pid)


@each_kind
@pytest.mark.parametrize("name", ["d", "x" * 120], ids=["short", "long"])
def test_next_open_replaces_a_killed_server(home: Path, name: str) -> None:
    with EmbeddedServer.open(home / name) as first:
        call(first, "SET", "k", "v")
        wait_until_written(first)
        os.kill(first.pid, signal.SIGKILL)
        wait_for_end(first.pid)
        with max((home / name).glob("**/*.aof")).open("ab") as file:
            file.write(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$50\r\ncut o")
        with EmbeddedServer.open(home / name) as second:
            assert second.pid != first.pid
            assert call(second, "GET", "k") == b"v"
        # The first one's users find the second server, which stays for them.
        assert call(first, "GET", "k") == b"v"
    assert not is_alive(second.pid)


def test_killed_temporary_server_leaves_nothing(home: Path) -> None:
    with EmbeddedServer.open() as server:
        os.kill(server.pid, signal.SIGKILL)
        wait_for_end(server.pid)
    assert not os.path.exists(server.directory)


@each_kind
@temporary_or_not
def test_server_without_its_keeper_ends_with_its_last_user(home: Path, temporary: bool) -> None:
    with EmbeddedServer.open(None if temporary else home / "d") as server:
        kill_keeper(server)
        call(server, "PING")
    wait_for_end(server.pid)
    assert temporary != os.path.exists(server.directory)


@each_kind
def test_orphan_is_adopted_and_its_data_kept(home: Path) -> None:
    server = EmbeddedServer.open(home / "d")
    kill_keeper(server)
    call(server, "SET", "k", "v")
    server._let_go()  # as if this process had been killed as well
    with EmbeddedServer.open(home / "d") as again:
        assert again.pid == server.pid
        assert call(again, "GET", "k") == b"v"
    wait_for_end(server.pid)


@each_kind
def test_files_of_a_copy_a_crash_or_a_deleted_directory_do_not_mislead(home: Path) -> None:
    with EmbeddedServer.open(home / "d") as server:
        call(server, "SET", "k", "v")
        wait_until_written(server)
        shutil.copytree(home / "d", home / "copy", ignore=shutil.ignore_patterns("*.sock"))
        with socket.socket(socket.AF_UNIX) as stale:
            stale.bind(str(home / "copy" / "server.sock"))
        with EmbeddedServer.open(home / "copy") as copy:
            assert copy.pid != server.pid
            assert call(copy, "GETSET", "k", "w") == b"v"
        assert call(server, "GET", "k") == b"v"
        shutil.rmtree(home / "d")
        with EmbeddedServer.open(home / "d") as fresh:
            assert call(fresh, "GET", "k") is None
            server.close()
            assert call(fresh, "PING")


def test_forked_child_has_the_server_open_as_well(peer: StartPeer) -> None:
    owner = peer("")
    pid = int(owner.run(OPEN))
    for end in ("os._exit(0)", "sys.exit(0)", "(server.close(), os._exit(0))"):
        owner.run(f"child = os.fork(); child or {end}; os.waitpid(child, 0)")
        assert owner.run(PING) == "b'+PONG'"
    # Not so a program, even one that gets every descriptor.
    program = int(owner.run("import subprocess as s; value = s.Popen(['sleep', '60'], close_fds=False).pid"))
    child = int(owner.run("wait, go = os.pipe(); value = os.fork(); value or (os.read(wait, 1), os._exit(0))"))
    owner.kill()
    try:
        assert is_alive(pid)
        os.kill(child, signal.SIGKILL)
        wait_for_end(pid)
    finally:
        os.kill(program, signal.SIGKILL)


def test_forked_child_does_not_hold_the_locks_of_a_moment(home: Path, peer: StartPeer) -> None:
    (home / "d").mkdir()
    owner = peer(home / "d")
    owner.run("import fcntl; lock = embedded._Lock(path, 'server', os.O_CREAT); lock.take(fcntl.LOCK_EX)")
    child = int(owner.run("wait, go = os.pipe(); value = os.fork(); value or os.read(wait, 1)"))
    assert not is_free(home / "d" / "lock.server")
    owner.run("lock.close()")
    wait_until(lambda: is_free(home / "d" / "lock.server"))
    os.kill(child, signal.SIGKILL)  # which it has lived to see
