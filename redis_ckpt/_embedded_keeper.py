"""The keeper of an embedded server: a small process that ends the server when nobody uses it any more.

`embedded.py` spawns this file as a program of its own, with the data directory as its working
directory. Waiting for the users is one blocking call: each holds a shared lock on `lock.users`, which
the kernel drops however that user ends, and the keeper asks for the exclusive one. Once it has that,
nobody can join, so a server is never stopped under a process that just came.

The standard library only, and little of it: the keeper starts in 30 ms and stays around.
"""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import sys
import threading
from collections.abc import Sequence

# A server that is asked to stop writes out its append-only file; one that takes longer hangs.
STOP_SECONDS = 30.0
# What server and keeper print. The last run's is kept beside it: it may tell why a server crashed.
LOG = "server.log"
_LINES_SHOWN = 12


def server_command(binary: str, socket_path: str, temporary: bool) -> list[str]:
    """How the server is run; the keeper does it in the data directory."""
    command = [
        binary,
        "--port",
        "0",
        "--unixsocket",
        socket_path,
        "--unixsocketperm",
        "700",
        "--daemonize",
        "no",
    ]
    command += ["--dir", ".", "--save", "", "--appendonly", "no" if temporary else "yes"]
    return [*command, "--appendfsync", "everysec"]


def reads_data_of(binary: str, directory: str) -> bool:
    """False for a Redis 6 on the data of a later one: it would not see them, and start empty."""
    if not os.path.isdir(os.path.join(directory, "appendonlydir")):
        return True
    import re
    import subprocess

    answer = subprocess.run([binary, "--version"], capture_output=True, text=True, check=False).stdout
    version = re.search(r"v=(\d+)\.\d+", answer)
    return version is None or int(version[1]) >= 7


def ask(socket_path: str, command: bytes) -> bytes:
    """The server's reply to a command: the line as it came, or the body of a bulk string."""
    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(1)
        link.connect(socket_path)
        link.sendall(command + b"\r\n")
        with link.makefile("rb") as replies:
            line = replies.readline()
            return replies.read(int(line[1:])) if line.startswith(b"$") else line.rstrip()


def spawn(directory: str, locks: tuple[int, int, int], remove: str, socket_path: str, command: list[str]) -> bool:
    """Start a keeper.

    Args:
        directory: The data directory.
        locks: Descriptors of lock.users (not locked), lock.keeper (locked) and lock.server (locked
            if there is a server to start). The keeper has them when this returns.
        remove: A directory that goes with the server, or "".
        socket_path: Where the server listens.
        command: The server to start; empty when one is running whose keeper was killed.

    Returns:
        Whether it runs. If not, the reason is in the log.
    """
    import shutil  # the keeper itself does without these
    import subprocess

    # An application server or a frozen program is no interpreter, though sys.executable names it.
    python = sys.executable or ""
    if not os.path.basename(python).lower().startswith(("python", "pypy")):
        path = os.path.join(sys.base_prefix, "bin") + os.pathsep + os.environ.get("PATH", os.defpath)
        python = shutil.which("python3", path=path) or "python3"
    log = os.path.join(directory, LOG)
    if command and os.path.exists(log):
        os.replace(log, log + ".old")
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        # -I -S: neither the user's environment nor any installed package changes what runs there.
        # A session of its own: Ctrl-C in the user's terminal is for the user's program.
        process = subprocess.Popen(
            [python, "-I", "-S", os.path.abspath(__file__), *map(str, locks), remove, socket_path, *command],
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=locks,
            start_new_session=True,
        )
    finally:
        os.close(output)
    return process.wait() == 0


def end_of_log(directory: str) -> str:
    """The last lines of the server's log, as the end of a message."""
    try:
        with open(os.path.join(directory, LOG), encoding="utf-8", errors="replace") as file:
            lines = file.read().splitlines()[-_LINES_SHOWN:]
    except OSError:
        lines = []
    return "; its log ends with\n    " + "\n    ".join(lines) if lines else ""


def keep_child(users: int, server: int, command: list[str]) -> None:
    """Start the server, stop it when the last user has gone, and return when it has ended."""
    # The server inherits its own lock and no other, and so holds it exactly as long as it lives.
    os.set_inheritable(server, True)
    # SIGTERM is blocked in the server: whoever ends a whole service sends it to all processes at once,
    # and the users are to write their last checkpoints first. SIGINT is the keeper's way to end it.
    pid = os.posix_spawn(
        command[0],
        command,
        # Some releases do not start when the environment names a locale that is not installed.
        {**os.environ, "LC_ALL": "C"},
        setsigmask=[signal.SIGTERM],
        setsigdef=[signal.SIGINT, signal.SIGHUP, signal.SIGTERM],
    )
    os.close(server)
    ended = threading.Event()

    def stop() -> None:
        fcntl.flock(users, fcntl.LOCK_EX)
        if ended.is_set():  # the number may be another process's by now
            return
        os.kill(pid, signal.SIGINT)
        if not ended.wait(STOP_SECONDS):
            os.kill(pid, signal.SIGKILL)

    # A thread, so that the end of the users and the end of the server are both waited for without polling.
    threading.Thread(target=stop, daemon=True).start()
    os.waitpid(pid, 0)
    ended.set()


def keep_stranger(users: int, socket_path: str) -> None:
    """The same for a server that runs already and is no child: its first keeper was killed.

    It is stopped through its socket, not by a process id, which may be another's by then.
    """
    ended = threading.Event()
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(socket_path)

        def stop() -> None:
            fcntl.flock(users, fcntl.LOCK_EX)
            link.sendall(b"SHUTDOWN\r\n")
            if not ended.wait(STOP_SECONDS):
                link.shutdown(socket.SHUT_RDWR)

        threading.Thread(target=stop, daemon=True).start()
        # The connection ends when the server does.
        while link.recv(4096):
            pass
        ended.set()


def main(arguments: Sequence[str]) -> None:
    """Part from the process that spawned this one, keep the server, clean up."""
    users, keeper, server = map(int, arguments[:3])
    remove, socket_path, *command = arguments[3:]
    for lock in (users, keeper, server):
        os.set_inheritable(lock, False)
    # The keeper is nobody's child, so that no user finds a zombie or gets a SIGCHLD.
    if os.fork():
        os._exit(0)
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    os.umask(0o077)
    try:
        if command:
            keep_child(users, server, command)
        else:
            keep_stranger(users, socket_path)
    except OSError as error:
        # Standard error is the server's log, whose end becomes part of the user's error message.
        print(f"{command[0] if command else socket_path}: {error}", file=sys.stderr, flush=True)
    finally:
        if remove:
            # Whoever has a temporary server open may still want to read in its log why it ended.
            if os.path.samefile(remove, os.curdir):
                fcntl.flock(users, fcntl.LOCK_EX)
            import shutil  # as slow to import as all the rest together

            shutil.rmtree(remove, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1:])
