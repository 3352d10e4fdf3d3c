"""Runs `test_operations.py` under pytest-benchmark and merges what the turns of a cell found.

python -m bench.operations
"""

from __future__ import annotations

import json
import statistics
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

from bench.children import run, stop_in_order
from bench.results import rounded, save

SUITE = "bench/test_operations.py"
OPTIONS = ("-q", "-p", "no:randomly", "--timeout=600", "--benchmark-disable-gc", "--benchmark-save-data")

Cell = tuple[str, str, str]


def merged(benchmarks: list[dict[str, Any]]) -> dict[str, Any]:
    """Workload -> operation -> row -> median and 95th percentile in microseconds, over the calls of all turns."""
    seconds: dict[Cell, list[float]] = defaultdict(list)
    for one in benchmarks:
        where = one["extra_info"]
        seconds[where["workload"], where["operation"], where["row"]] += one["stats"]["data"]
    found: dict[str, Any] = {}
    for (workload, operation, row), taken in seconds.items():
        taken.sort()
        found.setdefault(workload, {}).setdefault(operation, {})[row] = {
            "median": rounded(statistics.median(taken) * 1e6),
            "p95": rounded(taken[int(len(taken) * 0.95)] * 1e6),
            "calls": len(taken),
        }
    return found


def main() -> None:
    """Run the suite and keep its figures."""
    stop_in_order()
    with tempfile.TemporaryDirectory(prefix="ckpt-bench-") as folder:
        raw = Path(folder) / "operations.json"
        # its own table has a line a turn; ours are in the report
        kept = (f"--benchmark-storage=file://{folder}", f"--benchmark-json={raw}")
        run("-m", "pytest", SUITE, *OPTIONS, "--benchmark-quiet", *kept)
        save("operations", merged(json.loads(raw.read_text("utf-8"))["benchmarks"]))


if __name__ == "__main__":
    main()
