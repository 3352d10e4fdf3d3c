"""A short form of each campaign with every `make test`; the long forms are `make campaigns`."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.campaigns.plan import CAMPAIGNS
from tests.campaigns.results import Setting
from tests.servers import REAL_KINDS

pytestmark = pytest.mark.timeout(300)

ON_EVERY_SERVER = ("worker-kills", "server-kills", "memory-lru")
CASES = [
    (name, kind)
    for name in CAMPAIGNS
    for kind in (REAL_KINDS if name in ON_EVERY_SERVER else REAL_KINDS[:1])  # `make campaigns` has the others
]


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_nothing_that_was_acknowledged_is_lost_or_torn(name: str, kind: str, tmp_path: Path) -> None:
    plan = CAMPAIGNS[name]
    amount, width = plan.sizes("short")
    seed = random.getrandbits(32)
    result = plan.campaign(Setting(kind, amount, width, seed, tmp_path))
    assert not result.faults, f"seed {seed}\n" + "\n".join(result.faults)
    assert [result.counts.get(name, 0) for name in ("lost", "torn", "run again")] == [0, 0, 0]
    assert result.counts[plan.counted] >= amount
