"""The soak: four processes write, one sweeps all the time, and in the end every thread is verified.

    python -m tests.soak.soak [--seconds 60] [--server valkey|redis62|path] [--seed N]

Prints a Markdown table; the exit code is 1 if anything was wrong.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, NamedTuple

from tests.servers import REAL_KINDS, Server, start
from tests.soak.verify import Verifier
from tests.soak.worker import WRITERS, Order
from tests.soak.writers import Report

ROOT = Path(__file__).parents[2]
START_SECONDS, END_SECONDS = 60.0, 60.0
COLUMNS = (
    "server",
    "seconds",
    "puts",
    "put_writes",
    "read back",
    "sweeps, prunes",
    "removed by sweeps",
    "threads verified",
    "checkpoints verified",
    "failures",
)


class Result(NamedTuple):
    """What a campaign did and what went wrong."""

    server: str
    seconds: float
    counts: Counter[str]
    threads: int
    checkpoints: int
    failures: list[str]

    def row(self) -> str:
        counts = self.counts
        cells = [
            self.server,
            f"{self.seconds:.0f}",
            *(f"{counts[name]:,}" for name in ("puts", "put_writes", "read back", "sweeps", "removed")),
            f"{self.threads:,}",
            f"{self.checkpoints:,}",
            str(len(self.failures)),
        ]
        return f"| {' | '.join(cells)} |"

    def others(self) -> str:
        """What the table does not show."""
        shown = {"puts", "put_writes", "read back", "sweeps", "removed"}
        return ", ".join(f"{name} {count:,}" for name, count in sorted(self.counts.items()) if name not in shown)


class Process:
    """One worker; it is waited for by whoever ends it."""

    def __init__(self, order: Order, errors: IO[str]) -> None:
        self.name = f"{order.role} {order.number}"
        self._errors = errors
        command = [sys.executable, "-m", "tests.soak.worker", *map(str, order)]
        self._popen = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
        )

    def is_ready(self) -> bool:
        assert self._popen.stdout
        return self._popen.stdout.readline() == "ready\n"

    def begin(self) -> None:
        assert self._popen.stdin
        with suppress(BrokenPipeError):  # it has ended: its exit code tells
            self._popen.stdin.write("begin\n")
            self._popen.stdin.flush()

    def result(self) -> Report | str:
        """What it reports, once it has ended by itself; or why there is no report."""
        out, _ = self._popen.communicate()
        if self._popen.returncode == 0:
            return Report(**json.loads(out))
        self._errors.seek(0)
        return f"{self.name} ended with {self._popen.returncode}: {self._errors.read()[-2000:]}"

    def kill(self) -> None:
        self._popen.kill()

    def end(self) -> None:
        """End it, whatever it does, and close its pipes."""
        self.kill()
        with self._popen:
            pass


def campaign(server: Server, seconds: float, seed: int) -> Result:
    """One soak on a server that is empty; its processes have ended when it answers, or raises."""
    assert server.url is not None, "other processes cannot reach fakeredis"
    luck = random.Random(seed)
    orders = [Order("writer", n, server.url, seconds, luck.getrandbits(32)) for n in range(WRITERS)]
    orders.append(Order("sweeper", 0, server.url, seconds, luck.getrandbits(32)))
    begun = time.monotonic()
    outcomes = _outcomes(orders, START_SECONDS + seconds + END_SECONDS)
    lasted = time.monotonic() - begun
    reports = [outcome for outcome in outcomes if isinstance(outcome, Report)]
    failures = [outcome for outcome in outcomes if isinstance(outcome, str)]
    counts: Counter[str] = Counter()
    for report in reports:
        counts.update(report.counts)
        failures += report.failures
    verifier = Verifier(server, reports)
    verifier.run()
    counts["removed"] = counts.pop("swept", 0)
    counts["seconds with start and end"] = round(lasted)
    return Result(
        _product(server), seconds, counts, verifier.threads, verifier.checkpoints, failures + verifier.failures
    )


def _product(server: Server) -> str:
    about = server.raw().info("server")
    return f"Valkey {about['valkey_version']}" if "valkey_version" in about else f"Redis {about['redis_version']}"


def _outcomes(orders: list[Order], limit: float) -> list[Report | str]:
    """Start the processes, let them begin together, wait for all; none outlives this."""
    processes: list[Process] = []
    with ExitStack() as stack:
        # what blocks below ends when the processes are killed
        alarm = threading.Timer(limit, _kill, [processes])
        alarm.start()
        stack.callback(alarm.join)
        stack.callback(alarm.cancel)
        for order in orders:
            errors = stack.enter_context(tempfile.TemporaryFile("w+"))
            processes.append(Process(order, errors))
            stack.callback(processes[-1].end)
        ready = [process.is_ready() for process in processes]
        if all(ready):
            for process in processes:
                process.begin()
        return [process.result() for process in processes]


def _kill(processes: list[Process]) -> None:
    for process in processes:
        process.kill()


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.soak", description=__doc__.split("\n\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--server", choices=REAL_KINDS, action="append", help="all that are here, if none is given")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**32)
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that processes and server are ended here too
    print(f"seed {options.seed}", flush=True)
    results = []
    for kind in options.server or REAL_KINDS:
        server = start(kind)
        try:
            results.append(campaign(server, options.seconds, options.seed))
        finally:
            server.stop()
        print(f"{kind}: {results[-1].others()}", flush=True)
        print("".join(f"FAILURE {failure}\n" for failure in results[-1].failures), end="", flush=True)
    lines = (f"| {' | '.join(COLUMNS)} |", f"|---|{'---:|' * (len(COLUMNS) - 1)}", *(r.row() for r in results))
    print("", *lines, sep="\n")
    return int(any(result.failures for result in results))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
