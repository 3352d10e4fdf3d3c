"""Long campaigns that kill, cut and fill, and look whether anything that was acknowledged is lost or torn.

    python -m tests.campaigns NAME [--scale full|short] [--server valkey|redis62|path] [--seed N] [--out FOLDER]
    python -m tests.campaigns all --scale full    (the other servers that are here: in the short form)
    python -m tests.campaigns report

The exit code is 1 if a promise was not kept. `report` writes the table of docs/reliability.md from the results.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.campaigns import report
from tests.campaigns.plan import CAMPAIGNS, Scale
from tests.campaigns.results import Setting, run
from tests.servers import REAL_KINDS

OUT = Path(".campaigns")


def one(name: str, scale: Scale, kind: str, seed: int, out: Path) -> bool:
    """Run a campaign and say what came of it; whether it kept its promises."""
    plan = CAMPAIGNS[name]
    amount, width = plan.sizes(scale)
    print(f"{name} on {kind}: {amount} {plan.unit}, seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="ckpt-campaign-") as folder:
        setting = Setting(kind, amount, width, seed, Path(folder))
        begun = time.monotonic()
        result = run(name, plan.campaign, setting, scale, out)
    figures = ", ".join(f"{what} {count:,}" for what, count in result.counts.items())
    print(f"  {result.server}, {time.monotonic() - begun:.0f} s: {figures}", flush=True)
    print("".join(f"  FAULT {fault}\n" for fault in result.faults), end="", flush=True)
    return not result.faults


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns", description=__doc__.split("\n\n")[0])
    parser.add_argument("name", choices=(*CAMPAIGNS, "all", "report"))
    parser.add_argument("--scale", choices=("full", "short"), default="short")
    parser.add_argument("--server", choices=REAL_KINDS)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**32)
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args(arguments)
    if options.name == "report":
        report.write(options.out)
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that processes and servers are ended here too
    scales: dict[str, Scale] = {options.server or REAL_KINDS[0]: options.scale}
    if options.name == "all" and options.server is None:
        scales |= dict.fromkeys(REAL_KINDS[1:], "short")
    names = CAMPAIGNS if options.name == "all" else [options.name]
    kept = [one(name, scale, kind, options.seed, options.out) for kind, scale in scales.items() for name in names]
    return int(not all(kept))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
