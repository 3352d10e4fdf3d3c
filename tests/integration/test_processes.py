"""Prefork servers: a parent that has used its saver forks workers, which all use it, as gunicorn --preload does."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from redis_ckpt import RedisSaver
from tests.savers import cfg, values
from tests.servers import Server, on_real_servers

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 100
WORKERS, ROUNDS = 4, 20

BEGIN = f"""
import asyncio, os, sys, threading
from redis_ckpt import AsyncRedisSaver, RedisSaver
from tests.savers import arguments, cfg
URL, WORKERS, ROUNDS = sys.argv[1], {WORKERS}, {ROUNDS}

def steps(name):
    for n in range(ROUNDS):
        yield arguments(f"id-{{n:03}}", t=name, parent=f"id-{{n - 1:03}}" if n else None, n=n, name=name)

def work(saver, name):
    for each in steps(name):
        saver.put(*each)
        assert saver.get_tuple(cfg(name)).checkpoint["channel_values"]["name"] == name

async def awork(saver, name):
    for each in steps(name):
        await saver.aput(*each)
        assert (await saver.aget_tuple(cfg(name))).checkpoint["channel_values"]["name"] == name

def fork(*works):
    children = []
    for work in works:
        child = os.fork()
        if child == 0:
            try:
                work()
            except BaseException as error:
                print(repr(error), file=sys.stderr, flush=True)
                os._exit(1)
            os._exit(0)
        children.append(child)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
"""

WAYS = {
    "blocking": """
        saver = RedisSaver(URL)
        work(saver, "parent")
        codes = fork(*(lambda n=n: work(saver, f"child-{n}") for n in range(WORKERS)))
        work(saver, "parent-again")
    """,
    "blocking, while threads work": """
        saver, done = RedisSaver(URL), threading.Event()
        def busy(n):
            while not done.is_set(): saver.put(*arguments(1, t=f"busy-{n}", a="x" * 10_000))
        threads = [threading.Thread(target=busy, args=(n,)) for n in range(3)]
        for thread in threads: thread.start()
        codes = fork(*(lambda n=n: work(saver, f"child-{n}") for n in range(WORKERS)))
        done.set()
        for thread in threads: thread.join()
    """,
    "asyncio": """
        saver = AsyncRedisSaver(URL)
        asyncio.run(awork(saver, "parent"))
        codes = fork(*(lambda n=n: asyncio.run(awork(saver, f"child-{n}")) for n in range(WORKERS)))
        asyncio.run(awork(saver, "parent-again"))
    """,
    "blocking calls of an asyncio saver": """
        saver = AsyncRedisSaver(URL)
        work(saver, "parent")
        codes = fork(*(lambda n=n: work(saver, f"child-{n}") for n in range(WORKERS)))
        work(saver, "parent-again")
        saver.close()
    """,
    "asyncio, while a loop runs in another thread": """
        saver, done = AsyncRedisSaver(URL), threading.Event()
        async def busy():
            while not done.is_set():
                await asyncio.gather(*(saver.aput(*arguments(1, t=f"busy-{n}", a="x" * 10_000)) for n in range(8)))
        thread = threading.Thread(target=lambda: asyncio.run(busy()))
        thread.start()
        codes = fork(*(lambda n=n: asyncio.run(awork(saver, f"child-{n}")) for n in range(WORKERS)))
        done.set()
        thread.join()
    """,
}


@on_real_servers
@pytest.mark.parametrize("way", WAYS)
def test_workers_that_were_forked_use_the_saver_of_their_parent(server: Server, way: str) -> None:
    assert server.url is not None
    code = BEGIN + textwrap.dedent(WAYS[way]) + "\nassert codes == [0] * WORKERS, codes\n"
    command = [sys.executable, "-W", "ignore", "-c", code, server.url]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert (done.returncode, done.stderr) == (0, "")
    with RedisSaver(server.url) as saver:
        for n in range(WORKERS):
            assert values(saver.get_tuple(cfg(f"child-{n}"))) == {"n": ROUNDS - 1, "name": f"child-{n}"}
            assert len(list(saver.list(cfg(f"child-{n}")))) == ROUNDS
