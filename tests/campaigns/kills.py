"""Workers and servers that are killed in the middle of supersteps."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import socket
import time
from contextlib import suppress
from pathlib import Path

from tests.campaigns.checks import Checker
from tests.campaigns.journal import Journal
from tests.campaigns.results import Result, Setting, product
from tests.campaigns.runs import COLOURS, MOST_TURNS, Runs, during
from tests.campaigns.worker import work
from tests.integration.long_runs import PATIENT
from tests.servers import HOST, Server, spawn, start

LINES = (1, 60)  # of the journal that a worker writes before it is killed
LONGEST_PAUSE_SECONDS = 0.004  # from such a line to the kill: all that lies between two lines may be met
START_SECONDS = 60.0
QUIET_PORTS = (20_000, 30_000)


def worker_kills(setting: Setting) -> Result:
    """Workers of both colours in turn; after each kill a process of the other colour reads all."""
    result = Result("worker processes killed (SIGKILL) in the middle of supersteps")
    server = start(setting.kind)
    try:
        result.server = product(server)
        _Workers(setting, server).run(result)
    finally:
        server.stop()
    return result


class _Workers:
    def __init__(self, setting: Setting, server: Server) -> None:
        assert server.url is not None
        self._setting, self._url = setting, server.url
        self._luck = random.Random(setting.seed)
        self._journal = setting.folder / "journal"
        Journal(self._journal).close()
        self._checker = Checker(self._url, self._journal)
        self._numbers = [0] * setting.width
        # A server of processes that has imported everything: a worker is there within milliseconds.
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["tests.campaigns.worker"])

    def run(self, result: Result) -> None:
        for n in range(self._setting.amount):
            colour = COLOURS[n % 2]
            self._one_life(colour)
            result.add({"kills": 1, f"{colour} workers killed": 1}, [])
            self._look(COLOURS[(n + 1) % 2])
            if self._checker.faults:
                break
        self._checker.check_everything()
        told = self._checker.acknowledged.counts
        result.add(self._checker.counts, self._checker.faults)
        result.add({f"acknowledged {what}": told[what] for what in ("put", "writes")}, [])
        result.add({"threads": len(self._checker.acknowledged.checkpoints), "run again": told["run again"]}, [])

    def _one_life(self, colour: str) -> None:
        ours, theirs = self._context.Pipe(duplex=False)
        ids = [f"worker-{slot}-{number}" for slot, number in enumerate(self._numbers)]
        arguments = (colour == "async", self._url, self._journal, ids, theirs)
        process = self._context.Process(target=work, args=arguments, daemon=True)
        process.start()
        theirs.close()
        try:
            for _ in range(self._luck.randint(*LINES)):
                if not ours.poll(START_SECONDS):
                    raise RuntimeError(f"a worker has said nothing for {START_SECONDS:.0f} s")
                ours.recv_bytes()
            time.sleep(self._luck.uniform(0, LONGEST_PAUSE_SECONDS))
        except EOFError:
            self._checker.faults.append(f"the {colour} worker of {ids} ended by itself")
        finally:
            process.kill()
            process.join()
            ours.close()
        if process.exitcode != -signal.SIGKILL and not self._checker.faults:
            self._checker.faults.append(f"a worker has ended with {process.exitcode}")

    def _look(self, colour: str) -> None:
        self._checker.check_all(colour)
        for slot, number in enumerate(self._numbers):
            if self._checker.turns.get(f"worker-{slot}-{number}", 0) >= MOST_TURNS:
                self._numbers[slot] += 1


class DurableServer:
    """A server whose writes are on disk before it answers; it comes back on the same port with all that it had."""

    def __init__(self, kind: str, folder: Path) -> None:
        self._kind, self._folder, self.port = kind, folder, _quiet_port()
        self.server = self._start()

    @property
    def url(self) -> str:
        return f"redis://{HOST}:{self.port}"

    def kill(self) -> None:
        os.kill(self.server.pid, signal.SIGKILL)
        self.server.stop()

    def restart(self) -> None:
        self.server = self._start()

    def _start(self) -> Server:
        always = ["--appendonly", "yes", "--appendfsync", "always", "--save", "", "--dir", str(self._folder)]
        return spawn(self._kind, self.port, ["--port", str(self.port), "--bind", HOST, *always])


def _quiet_port() -> int:
    """A free port outside the range that clients get theirs from: nobody takes it while its server is dead."""
    while True:
        port = random.randint(*QUIET_PORTS)
        with socket.socket() as sock, suppress(OSError):
            sock.bind((HOST, port))
            return port


def server_kills(setting: Setting) -> Result:
    """One server with `appendfsync always`, killed and begun again while runs of both colours go on."""
    result = Result("server processes killed (SIGKILL), `appendfsync always`, begun again")
    luck = random.Random(setting.seed)
    durable = DurableServer(setting.kind, setting.folder)
    try:
        result.server = product(durable.server)

        def die(_: int) -> None:
            time.sleep(luck.uniform(0, 0.3))
            durable.kill()
            time.sleep(luck.uniform(0, 0.2))
            durable.restart()
            result.add({"kills": 1}, [])

        runs = Runs(durable.url, setting.folder, setting.width, retry=PATIENT)
        with runs:
            during(runs, setting.amount, die)
        runs.finish(result)
    finally:
        durable.server.stop()
    return result
