"""The story: three workers, one after the other, and the promises that are held against what happened."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import redis
from langchain_core.runnables import RunnableConfig

from redis_ckpt import RedisSaver
from redis_ckpt import _keys as names
from redis_ckpt.demo.agent import PIECES, PRICES, SLOW
from redis_ckpt.demo.facts import (
    Said,
    Step,
    StoredKey,
    executions,
    history,
    stored_keys,
    stored_questions,
    stored_quotes,
)

THREAD = "desk"
STEPS = ("start", "resume", "approve")  # one worker for each
PATIENCE_S = 120  # a worker whose step takes longer hangs: it is killed, and the story fails

QUOTES = [f"get_quote {supplier}" for supplier in PRICES]
WAITING = [f"get_quote {supplier}" for supplier in SLOW]
FINISHED = [quote for quote in QUOTES if quote not in WAITING]


class StoryError(Exception):
    """The story cannot go on."""


class Worker:
    """A worker process and what it says."""

    def __init__(self, url: str, journal: Path, step: str, said: list[Said]) -> None:
        # A tracing key in the user's environment must not make the demo send anything anywhere.
        env = {**os.environ, "LANGSMITH_TRACING_V2": "false", "LANGCHAIN_TRACING_V2": "false"}
        command = [sys.executable, "-m", "redis_ckpt.demo.worker", url, THREAD, str(journal), step]
        # A session of its own: Ctrl-C is for the parent, which then ends its workers.
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env, start_new_session=True
        )
        self._watchdog = threading.Timer(PATIENCE_S, self._process.kill)
        self._said = said
        self.pid = self._process.pid

    def begin(self) -> None:
        """Let it do its step."""
        assert self._process.stdin is not None
        self._watchdog.start()
        with contextlib.suppress(BrokenPipeError):  # it has failed already; `end` will notice
            self._process.stdin.write("\n")
            self._process.stdin.flush()

    def lines(self) -> Iterator[Said]:
        """What it says, as it says it."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._said.append(json.loads(line))
            yield self._said[-1]

    def end(self) -> Said:
        """Wait until it has done its step.

        Raises:
            StoryError: It has failed; its traceback is on our standard error.
        """
        last = [line for line in self.lines() if line["event"] == "end"]
        code = self._process.wait()
        if code or not last:
            raise StoryError(f"worker {self.pid} ended with exit code {code}")
        return last[0]

    def kill(self) -> int:
        """SIGKILL, and the exit code that it leads to."""
        self._process.kill()
        return self._process.wait()

    def close(self) -> None:
        """Leave nothing of it behind."""
        self._watchdog.cancel()
        self._process.kill()
        with contextlib.suppress(BrokenPipeError):
            self._process.communicate()


@dataclass
class Telling:
    """What has happened, act by act."""

    pids: list[int] = field(default_factory=list)  # of workers 1, 2, 3
    said: list[Said] = field(default_factory=list)
    exit_code: int = 0  # of the worker that was killed
    stored_at_kill: list[str] = field(default_factory=list)
    question: str = ""
    question_stored: bool = False
    answer: str = ""
    executions: Counter[tuple[str, int]] = field(default_factory=Counter)
    steps: list[Step] = field(default_factory=list)
    keys: list[StoredKey] = field(default_factory=list)
    keys_after_delete: int = -1

    def runs(self, task: str, worker: int | None = None) -> int:
        """How often a task was executed: by one worker (1, 2, 3), or in all."""
        if worker is not None:
            return self.executions[task, self.pids[worker - 1]]
        return sum(n for (name, _pid), n in self.executions.items() if name == task)


class Stage:
    """One telling of the story on one server. The three workers stand ready from the beginning."""

    def __init__(self, url: str, journal: Path, saver: RedisSaver, raw: redis.Redis) -> None:
        self._journal, self._saver, self._raw = journal, saver, raw
        self.told = Telling()
        self._workers = [Worker(url, journal, step, self.told.said) for step in STEPS]
        self.told.pids = [worker.pid for worker in self._workers]

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *exc: object) -> None:
        for worker in self._workers:
            worker.close()

    def server(self) -> str:
        """What the story is told on."""
        info = self._raw.info("server")
        version = info.get("valkey_version")
        return f"on Valkey {version}" if version else f"on Redis {info['redis_version']}"

    def killed_in_the_middle(self) -> None:
        """Worker 1 begins. When four of the six quotes are stored and two still wait, it is killed."""
        worker = self._workers[0]
        worker.begin()
        stored: dict[str, set[str]] = {}
        waiting: set[str] = set()
        for line in worker.lines():
            if line["event"] == "put_writes":
                stored.setdefault(line["checkpoint"], set()).add(line["task"])
            elif line["event"] == "waiting":
                waiting.add(line["supplier"])
            if waiting == {*SLOW} and any(len(tasks) == len(FINISHED) for tasks in stored.values()):
                break
        else:
            raise StoryError("worker 1 ended before it could be killed")
        self.told.exit_code = worker.kill()
        self.told.stored_at_kill = stored_quotes(self._saver.get_tuple(_config()))

    def resumed(self) -> None:
        """Worker 2 goes on from what is stored, until the agent asks for an approval."""
        self._workers[1].begin()
        self.told.question = ", ".join(self._workers[1].end()["questions"])
        self.told.executions = executions(self._journal)
        found = stored_questions(self._saver.get_tuple(_config()))
        self.told.question_stored = bool(self.told.question) and found == [self.told.question]

    def approved(self) -> None:
        """Worker 3 brings the answer to the question, and the agent finishes."""
        self._workers[2].begin()
        self.told.answer = self._workers[2].end()["answer"]

    def looked_into(self) -> None:
        """What is in the journal and in Redis at the end, and what is left when the thread is deleted."""
        told = self.told
        told.executions = executions(self._journal)
        told.steps = history(self._saver, self._raw, THREAD, told.said)
        told.keys = stored_keys(self._raw, THREAD)
        self._saver.delete_thread(THREAD)
        told.keys_after_delete = len(stored_keys(self._raw, THREAD))

    def lose_writes(self) -> None:
        """Throw away what the killed worker had stored: the checks must notice it."""
        keys = names.thread_keys(b"ckpt", THREAD)
        self._raw.delete(keys.writes, keys.pending)


class Promise(NamedTuple):
    """A promise, and whether it was held."""

    text: str
    held: bool


def promises(told: Telling) -> list[Promise]:
    """Everything that the demo claims, checked against what happened."""
    best = min(PRICES, key=lambda name: PRICES[name])
    cost = f"{PIECES * PRICES[best]} EUR"
    return [
        Promise("worker 1 died of SIGKILL inside a superstep", told.exit_code == -signal.SIGKILL),
        Promise("by then 4 of the 6 quotes were in Redis", told.stored_at_kill == FINISHED),
        Promise(
            "the 4 finished quotes did not run again",
            all(told.runs(q) == told.runs(q, 1) == 1 for q in FINISHED),
        ),
        Promise(
            "the 2 unfinished ones ran once more",
            all(told.runs(q, 1) == told.runs(q, 2) == 1 and told.runs(q) == 2 for q in WAITING),
        ),
        Promise(
            "no call of the model was repeated",
            (told.runs("model"), told.runs("find_suppliers")) == (4, 1),
        ),
        Promise("the question outlived the worker that asked", told.question_stored),
        Promise(
            "one order was placed, at the best of six prices",
            told.runs("place_order") == told.runs("place_order", 3) == 1
            and best in told.answer
            and cost in told.answer,
        ),
        Promise("the history has no gap, in both namespaces", _whole(told.steps)),
        Promise("five keys hold all of the thread", sorted(k.name for k in told.keys) == _five_keys()),
        Promise("deleting the thread leaves no key", told.keys_after_delete == 0),
    ]


def _whole(steps: list[Step]) -> bool:
    chains: dict[str, list[Step]] = {}
    for step in steps:
        chains.setdefault(step.ns, []).append(step)
    return sorted(map(len, chains.values())) == [4, 9] and all(
        [s.step for s in chain] == list(range(-1, len(chain) - 1))
        and [s.parent for s in chain] == [None, *(s.id for s in chain[:-1])]
        for chain in chains.values()
    )


def _five_keys() -> list[str]:
    return sorted(key.decode() for key in names.thread_keys(b"ckpt", THREAD))


def _config() -> RunnableConfig:
    return {"configurable": {"thread_id": THREAD}}
