"""All benchmarks, one after another, each in a process of its own with servers of its own, and then the report.

    python -m bench                  about a quarter of an hour on two cores; writes docs/bench
    BENCH_QUICK=1 python -m bench    about three minutes; writes build/bench
    python -m bench.trips            one part alone; `python -m bench.report` writes the report anew

A goal that is missed is told in the report; only what breaks ends in an error.
"""

from __future__ import annotations

from time import perf_counter

from bench.children import run, stop_in_order
from bench.results import RAW, machine, save

PARTS = ("trips", "operations", "throughput", "floor", "agent", "depth", "sent", "chats", "report")


def main() -> None:
    """Run every part."""
    stop_in_order()
    began = perf_counter()
    RAW.unlink(missing_ok=True)  # a report never mixes two runs
    save("machine", machine())
    for part in PARTS:
        before = perf_counter()
        print(f"== {part}", flush=True)
        run("-m", f"bench.{part}")
        print(f"   {perf_counter() - before:.0f} s", flush=True)
    print(f"{perf_counter() - began:.0f} s in all")


if __name__ == "__main__":
    main()
