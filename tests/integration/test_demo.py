"""The demo shows what it claims, fits on a screen, leaves nothing behind, and fails when a promise is broken."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from redis_ckpt.demo import __main__ as demo
from redis_ckpt.demo import story
from redis_ckpt.demo.agent import REQUEST, Desk, build
from redis_ckpt.demo.facts import Step, StoredKey, executions
from redis_ckpt.demo.story import FINISHED, QUOTES, WAITING, Telling, promises

ROOT = Path(__file__).resolve().parents[2]
LINES, COLUMNS = 45, 100
PATIENCE_S = 240  # a busy machine needs long to start four interpreters

pytestmark = pytest.mark.timeout(PATIENCE_S + 60)


def run_demo(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {k: v for k, v in os.environ.items() if k != "COLUMNS"}
    return subprocess.run(
        [sys.executable, "-m", "redis_ckpt.demo", *arguments],
        env={**kept, "PYTHONPATH": str(ROOT), "TMPDIR": str(folder), **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )


def assert_fits_on_a_screen(text: str) -> None:
    lines = text.splitlines()
    assert len(lines) <= LINES
    assert max(map(len, lines)) <= COLUMNS


def assert_nothing_is_left(folder: Path) -> None:
    assert list(folder.iterdir()) == []
    if Path("/proc/self/environ").exists():
        assert [pid for pid in _processes() if f"TMPDIR={folder}".encode() in _environment(pid)] == []


def _processes() -> list[str]:
    return [name for name in os.listdir("/proc") if name.isdigit()]


def _environment(pid: str) -> bytes:
    try:
        return Path("/proc", pid, "environ").read_bytes()
    except OSError:  # it has ended, or is another user's
        return b""


def test_demo_survives_the_kill_and_shows_it(tmp_path: Path) -> None:
    ended = run_demo(tmp_path)
    shown = ended.stdout
    assert (ended.returncode, ended.stderr) == (0, ""), shown + ended.stderr
    assert_fits_on_a_screen(shown)
    assert "10 of 10 promises held" in shown
    for quote in FINISHED:
        assert re.search(rf"{quote} +1 +from Redis +1\b", shown)
    for quote in WAITING:
        assert re.search(rf"{quote} +1 killed +1 +2\b", shown)
    for key in ("checkpoints +hash", "blobs +hash", "writes +hash", "order +zset", "pending +zset"):
        assert re.search(rf"{key} +\d+ +[\d.]+ k?B", shown)
    assert len(re.findall(r"^(\* |\| \* |\|\\\* )(input|loop) +-?\d+ +[123] +\d+\.\d\d ", shown, re.MULTILINE)) == 13
    assert "24 chairs ordered from Elm for 3096 EUR." in shown
    assert_nothing_is_left(tmp_path)


def test_demo_fails_when_the_stored_writes_are_lost(tmp_path: Path) -> None:
    ended = run_demo(tmp_path, "--lose-writes", COLUMNS="100")
    assert (ended.returncode, ended.stderr) == (1, "")
    assert re.search(r"BROKEN +the 4 finished quotes did not run again", ended.stdout)
    assert "9 of 10 promises held" in ended.stdout
    assert_fits_on_a_screen(ended.stdout)
    assert_nothing_is_left(tmp_path)


def test_demo_fails_when_a_worker_does(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr(story, "STEPS", ("resume", "resume", "approve"))  # there is nothing to resume
    assert demo.main([]) == 1
    assert "worker 1 ended before it could be killed" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_demo_says_what_to_install(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert demo.main([]) == 2
    assert "pip install 'redis-ckpt[demo]'" in capsys.readouterr().err


def test_the_agent_orders_nothing_without_a_yes(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    graph = build(Desk(journal, lambda supplier: None), InMemorySaver())
    config: RunnableConfig = {"configurable": {"thread_id": "t"}}
    asked = graph.invoke({"messages": [("user", REQUEST)]}, config)
    assert [question.value for question in asked["__interrupt__"]] == ["Order 24 chairs from Elm for 3096 EUR?"]
    refused = graph.invoke(Command(resume="no"), config)
    assert refused["messages"][-1].content == "Not ordered."
    done = Counter(task for task, _pid in executions(journal).elements())
    assert done == {"model": 4, "find_suppliers": 1, **dict.fromkeys(QUOTES, 1)}


def a_good_telling() -> Telling:
    """A telling in which every promise was held."""
    ran = Counter({("model", 1): 2, ("model", 2): 1, ("model", 3): 1, ("find_suppliers", 1): 1, ("place_order", 3): 1})
    ran.update({(quote, 1): 1 for quote in QUOTES})
    ran.update({(quote, 2): 1 for quote in WAITING})
    root, inner = a_chain("", 9), a_chain("purchase:1", 4)
    return Telling(
        pids=[1, 2, 3],
        exit_code=-9,
        stored_at_kill=[*FINISHED],
        question="Order?",
        question_stored=True,
        answer="24 chairs ordered from Elm for 3096 EUR.",
        executions=ran,
        steps=[*root, *inner],
        keys=[StoredKey(name, "hash", 1, 1) for name in story._five_keys()],
        keys_after_delete=0,
    )


def a_chain(ns: str, length: int) -> list[Step]:
    ids = [None, *(f"{ns}{n}" for n in range(length))]
    return [
        Step(ns, str(own), parent, "loop", n - 1, 1, "", 1, 1, 1, 1, 1.0, 1.0)
        for n, (parent, own) in enumerate(pairwise(ids))
    ]


def again(task: str, pid: int) -> Callable[[Telling], Telling]:
    return lambda told: replace(told, executions=told.executions + Counter({(task, pid): 1}))


def not_at_all(task: str, pid: int) -> Callable[[Telling], Telling]:
    return lambda told: replace(told, executions=told.executions - Counter({(task, pid): 1}))


BREAKS: list[tuple[str, Callable[[Telling], Telling]]] = [
    ("SIGKILL", lambda told: replace(told, exit_code=0)),
    ("SIGKILL", lambda told: replace(told, exit_code=1)),
    ("4 of the 6", lambda told: replace(told, stored_at_kill=FINISHED[:3])),
    ("4 of the 6", lambda told: replace(told, stored_at_kill=[*QUOTES])),
    ("finished quotes", again(FINISHED[0], 2)),
    ("finished quotes", again(FINISHED[-1], 1)),
    ("unfinished", not_at_all(WAITING[0], 2)),
    ("unfinished", again(WAITING[1], 3)),
    ("model", again("model", 2)),
    ("model", again("find_suppliers", 2)),
    ("question", lambda told: replace(told, question_stored=False)),
    ("one order", again("place_order", 2)),
    ("one order", again("place_order", 3)),
    ("one order", not_at_all("place_order", 3)),
    ("one order", lambda told: replace(told, answer=told.answer.replace("Elm", "Fir"))),
    ("history", lambda told: replace(told, steps=told.steps[1:])),
    ("history", lambda told: replace(told, steps=told.steps[:4] + told.steps[5:])),
    ("history", lambda told: replace(told, steps=told.steps[:9])),
    ("five keys", lambda told: replace(told, keys=told.keys[1:])),
    ("five keys", lambda told: replace(told, keys=[*told.keys, StoredKey("more", "hash", 1, 1)])),
    ("deleting", lambda told: replace(told, keys_after_delete=1)),
]


def test_every_promise_is_held_in_a_good_telling() -> None:
    assert all(promise.held for promise in promises(a_good_telling()))


@pytest.mark.parametrize(("about", "change"), BREAKS, ids=[f"{n}-{b[0]}" for n, b in enumerate(BREAKS)])
def test_a_broken_promise_is_noticed(about: str, change: Callable[[Telling], Telling]) -> None:
    (broken,) = [promise for promise in promises(change(a_good_telling())) if not promise.held]
    assert about in broken.text


def test_no_promise_goes_untested() -> None:
    texts = [promise.text for promise in promises(a_good_telling())]
    assert all(any(about in text for about, _ in BREAKS) for text in texts)
