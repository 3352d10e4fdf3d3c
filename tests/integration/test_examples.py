"""Each example runs as it is: no arguments, no network, nothing on standard error, nothing left behind."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers import REAL_KINDS, Server

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
PATIENCE_S = 240  # a busy machine needs long to start several interpreters

pytestmark = pytest.mark.timeout(PATIENCE_S + 30)

OUTPUT = {
    "chat_agent.py": """\
you:   Good morning!
agent: I have heard 1 message from you.
you:   By the way, my name is Ada.
agent: Hello Ada.
you:   What is my name?
agent: You are Ada.
""",
    "approval.py": """\
Ada: waits for an answer
Bob: waits for an answer
Cy: 20 EUR paid to Cy
Refund 400 EUR to Ada? yes
Ada: 400 EUR paid to Ada
Refund 9000 EUR to Bob? no
Bob: declined, Bob gets a letter
""",
    "fastapi_app.py": """\
(1) You said: Hello
(1) You said: Hello
(2) You said: How are you?
(2) You said: How are you?
 human: Hello
    ai: (1) You said: Hello
 human: How are you?
    ai: (2) You said: How are you?
sent twice at once: 200 409
after the deletion: 404
""",
}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Where examples put what is temporary; it must be empty again when they have ended."""
    yield tmp_path
    assert list(tmp_path.iterdir()) == []


def run_example(name: str, *arguments: str, folder: Path, **environment: str) -> str:
    """What an example prints; it must succeed and must not complain."""
    kept = {k: v for k, v in os.environ.items() if k not in ("REDIS_URL", "PYTEST_ADDOPTS")}
    ended = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments],
        env={**kept, "PYTHONPATH": str(ROOT), "TMPDIR": str(folder), **environment},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stdout + ended.stderr
    return ended.stdout


@pytest.mark.parametrize("name", OUTPUT)
def test_example_runs_as_it_is(name: str, folder: Path) -> None:
    assert run_example(name, folder=folder) == OUTPUT[name]


@pytest.mark.parametrize("name", OUTPUT)
@pytest.mark.parametrize("server", REAL_KINDS[:1], indirect=True)
def test_example_uses_the_redis_that_the_environment_names(name: str, server: Server, folder: Path) -> None:
    assert server.url is not None
    before = commands(server)
    assert run_example(name, folder=folder, REDIS_URL=server.url) == OUTPUT[name]
    assert commands(server) > before


def commands(server: Server) -> int:
    """How many scripts the server has run so far."""
    stats = server.raw().info("commandstats")
    return int(stats.get("cmdstat_evalsha", {}).get("calls", 0))


def test_chat_agent_remembers_what_another_process_was_told(tmp_path: Path) -> None:
    told = run_example("chat_agent.py", "ada", "Hi, my name is Ada.", folder=tmp_path)
    asked = run_example("chat_agent.py", "ada", "What is my name?", folder=tmp_path)
    other = run_example("chat_agent.py", "bob", "What is my name?", folder=tmp_path)
    assert told == "agent: Hello Ada.\n"
    assert asked == "agent: You are Ada.\n"
    assert other == "agent: You have not told me.\n"


def test_the_unit_tests_of_a_users_graph_pass_on_fakeredis(folder: Path) -> None:
    # the benchmark plugin of this project's environment leaves a folder behind
    assert "3 passed" in run_example("test_my_graph.py", folder=folder, PYTEST_ADDOPTS="-p no:benchmark")


def test_every_example_is_run_here() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == {*OUTPUT, "test_my_graph.py"}


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_example_is_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 95
