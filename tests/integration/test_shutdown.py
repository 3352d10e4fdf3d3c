"""The end of a process that has not closed its saver: its own exit code, soon, and no word on standard error."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.servers import Server, on_real_servers

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 100

BEGIN = """
import asyncio, atexit, os, sys, threading, time
from redis_ckpt import AsyncRedisSaver, RedisSaver
from tests.savers import arguments, cfg
URL = sys.argv[1]
def say(word):
    print(word, flush=True)
"""

ENDS = {
    "a saver of a module": """
        saver = RedisSaver(URL)
        saver.put(*arguments(1, a=1))
    """,
    "a saver that was used in threads": """
        saver = RedisSaver(URL)
        threads = [threading.Thread(target=saver.put, args=arguments(1, t=f"t{n}", a=n)) for n in range(4)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
    """,
    "daemon threads in the middle of calls": """
        saver, begun = RedisSaver(URL), threading.Semaphore(0)
        def work(n):
            while True:
                saver.put(*arguments(1, t=f"t{n}", a="x" * 100_000))
                begun.release()
        for n in range(4): threading.Thread(target=work, args=(n,), daemon=True).start()
        for _ in range(20): begun.acquire()
    """,
    "a use at the very end": """
        saver = RedisSaver(URL)
        atexit.register(lambda: saver.put(*arguments(1, a=1)))
    """,
    "an asyncio saver whose loop has ended": """
        saver = AsyncRedisSaver(URL)
        async def main():
            await asyncio.gather(*(saver.aput(*arguments(1, t=f"t{n}", a=n)) for n in range(20)))
        asyncio.run(main())
    """,
    "two loops, one after another": """
        saver = AsyncRedisSaver(URL)
        async def main(n):
            await saver.aput(*arguments(n, a=n))
        for n in (1, 2): asyncio.run(main(n))
    """,
    "unfinished tasks": """
        saver = AsyncRedisSaver(URL)
        async def work(n):
            while True: await saver.aput(*arguments(1, t=f"t{n}", a="x" * 100_000))
        async def main():
            tasks = [asyncio.create_task(work(n)) for n in range(8)]
            while await saver.aget_tuple(cfg("t7")) is None: pass
        asyncio.run(main())
    """,
    "blocking calls of an asyncio saver": """
        saver = AsyncRedisSaver(URL)
        saver.put(*arguments(1, a=1))
    """,
    "both colours, and an error": """
        one, two = RedisSaver(URL), AsyncRedisSaver(URL)
        one.put(*arguments(1, a=1))
        asyncio.run(two.aget_tuple(cfg()))
        sys.exit(7)
    """,
}


def command(code: str, url: str) -> list[str]:
    return [sys.executable, "-X", "dev", "-W", "ignore::ResourceWarning", "-c", BEGIN + textwrap.dedent(code), url]


@on_real_servers
@pytest.mark.parametrize("name", ENDS)
def test_a_process_ends_with_its_own_code_and_without_a_word(server: Server, name: str) -> None:
    assert server.url is not None
    done = subprocess.run(
        command(ENDS[name], server.url), cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_SECONDS
    )
    assert (done.returncode, done.stdout, done.stderr) == (7 if "error" in name else 0, "", "")


def test_an_embedded_server_ends_with_its_process(tmp_path: Path) -> None:
    code = """
        saver = RedisSaver(URL)
        saver.put(*arguments(1, a=1))
    """
    done = subprocess.run(
        command(code, f"embedded://{tmp_path}/data"), cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_SECONDS
    )
    assert (done.returncode, done.stderr) == (0, "")


RUN = {
    "sync": """
        saver = RedisSaver(URL)
        say("begun")
        n = 0
        while True:
            saver.put(*arguments(n % 9, a="x" * 1000))
            n += 1
    """,
    "async": """
        async def main():
            async with AsyncRedisSaver.from_conn_string(URL) as saver:
                say("begun")
                while True:
                    await asyncio.gather(*(saver.aput(*arguments(1, t=f"t{n}", a="x" * 1000)) for n in range(8)))
        asyncio.run(main())
    """,
}


@on_real_servers
@pytest.mark.parametrize("colour", RUN)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_in_the_middle_ends_it(server: Server, colour: str, number: signal.Signals) -> None:
    assert server.url is not None
    process = subprocess.Popen(
        command(RUN[colour], server.url), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    os.kill(process.pid, number)
    _, said = process.communicate(timeout=PATIENCE_SECONDS)
    if number == signal.SIGTERM:
        assert (process.returncode, said) == (-signal.SIGTERM, "")
    else:
        assert process.returncode in (-signal.SIGINT, 1, 130)
        assert said.rstrip().endswith("KeyboardInterrupt")
        assert "never awaited" not in said
        assert "Task was destroyed" not in said
