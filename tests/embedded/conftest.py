"""The fixtures of the embedded server: a folder of one's own, a choice of program, other processes."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from redis_ckpt import embedded
from tests.embedded.peers import Peer, StartPeer, is_free, wait_until
from tests.servers import BINARIES


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    # Below /tmp itself: the name of a socket must be short, and pytest's own directories are not.
    home = Path(tempfile.mkdtemp(prefix="emb-", dir="/tmp"))
    (home / "t").mkdir()
    monkeypatch.setenv("TMPDIR", str(home / "t"))
    monkeypatch.setattr(tempfile, "tempdir", str(home / "t"))
    yield home
    wait_until(lambda: all(is_free(lock) for lock in home.glob("**/lock.*")) and not os.listdir(home / "t"))
    shutil.rmtree(home)


@pytest.fixture
def use(home: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Sets the program that is run: a kind of server, or the text of a script."""

    def use(what: str) -> None:
        program = BINARIES.get(what, str(home / "program"))
        if what not in BINARIES:
            Path(program).write_text(what)
            Path(program).chmod(0o700)
        monkeypatch.setattr(embedded, "find_server_binary", lambda: program)

    return use


@pytest.fixture(params=list(BINARIES))
def kind(request: pytest.FixtureRequest, use: Callable[[str], None]) -> str:
    use(request.param)
    return str(request.param)


@pytest.fixture
def peer(home: Path) -> Iterator[StartPeer]:
    peers: list[Peer] = []

    def start(path: Path | str) -> Peer:
        peers.append(Peer(path))
        return peers[-1]

    yield start
    for one in peers:
        one.kill()
