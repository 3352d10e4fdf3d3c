"""A thousand runs at once on one saver."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.campaigns.checks import Checker
from tests.campaigns.graph import graph
from tests.campaigns.journal import AsyncSaver, Journal, SyncSaver
from tests.campaigns.results import Result, Setting, product
from tests.campaigns.runs import aturn, turn
from tests.servers import Server, start

THREADS = 64
SAMPLE_SECONDS = 0.05
PAGE_BYTES = 4096


def crowd(setting: Setting) -> Result:
    """All runs at once on one `AsyncRedisSaver`, then as many on 64 threads with one `RedisSaver`."""
    result = Result("runs at once on one saver")
    server = start(setting.kind)
    try:
        result.server = product(server)
        for name, drive in (("asyncio", _on_asyncio), ("threads", _on_threads)):
            path = setting.folder / name
            journal = Journal(path, is_synced=False)
            with _Sampler(server) as sampler:
                ids = [f"{name}-{n}" for n in range(setting.amount)]
                over = drive(server.url or "", journal, ids)
            journal.close()
            result.add({"runs": len(over)} | sampler.figures(name), [])
            result.faults += [f"{len(ids) - over.count(1)} runs on {name} have not come to their end"] * (
                over != [1] * len(ids)
            )
            checker = Checker(server.url or "", path)
            checker.check_everything()
            told = checker.acknowledged.counts
            result.add({f"acknowledged {what}": told[what] for what in ("put", "writes")}, [])
            result.add(checker.counts | {"run again": told["run again"]}, checker.faults)
    finally:
        server.stop()
    return result


def _on_asyncio(url: str, journal: Journal, ids: list[str]) -> list[int]:
    async def all_at_once() -> list[int]:
        async with AsyncSaver.from_conn_string(url) as saver:
            saver.journal = journal
            app = graph(saver, journal.started, 0.0)
            return list(await asyncio.gather(*(aturn(app, saver, thread_id) for thread_id in ids)))

    return asyncio.run(all_at_once())


def _on_threads(url: str, journal: Journal, ids: list[str]) -> list[int]:
    with SyncSaver.from_conn_string(url) as saver, ThreadPoolExecutor(THREADS) as pool:
        saver.journal = journal
        app = graph(saver, journal.started, 0.0)
        return list(pool.map(lambda thread_id: turn(app, saver, thread_id), ids))


class _Sampler:
    """Looks at connections and memory while a block runs."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._connections = 0
        self._before = self._most = _resident_bytes()

    def __enter__(self) -> _Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def figures(self, name: str) -> dict[str, int]:
        grown_mb = round((self._most - self._before) / 1e6)
        return {f"{name}: connections at once": self._connections, f"{name}: memory grown, MB": grown_mb}

    def _sample(self) -> None:
        with self._server.raw() as raw:
            while not self._done.wait(SAMPLE_SECONDS):
                own = 1
                self._connections = max(self._connections, int(raw.info("clients")["connected_clients"]) - own)
                self._most = max(self._most, _resident_bytes())


def _resident_bytes() -> int:
    """What this process has in memory; 0 where nobody tells."""
    told = Path("/proc/self/statm")
    return int(told.read_text().split()[1]) * PAGE_BYTES if told.exists() else 0
