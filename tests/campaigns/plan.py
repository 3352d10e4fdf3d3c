"""The campaigns, and how much each does."""

from __future__ import annotations

from typing import Literal, NamedTuple

from tests.campaigns import crowd, failovers, kills, memory, network
from tests.campaigns.results import Campaign

Scale = Literal["full", "short"]


class Plan(NamedTuple):
    """One campaign; the amounts are in its unit."""

    campaign: Campaign
    unit: str
    full: int
    short: int
    counted: str
    """The figure of its result that the amount is compared with."""
    width: int = 3
    """Runs at once, in each colour."""

    def sizes(self, scale: Scale) -> tuple[int, int]:
        return (self.full if scale == "full" else self.short), self.width


CAMPAIGNS = {
    "worker-kills": Plan(kills.worker_kills, "kills", 200, 10, "kills"),
    "server-kills": Plan(kills.server_kills, "kills", 50, 3, "kills"),
    "sentinel-failovers": Plan(failovers.sentinel_failovers, "failovers", 20, 1, "failovers"),
    "cluster-failovers": Plan(failovers.cluster_failovers, "failovers", 20, 1, "failovers"),
    "proxy": Plan(network.proxy, "seconds", 600, 4, "seconds"),
    "memory-full": Plan(memory.full, "times", 20, 1, "times full"),
    "memory-lru": Plan(memory.evicted_lru, "evicted keys", 2000, 20, "keys evicted"),
    "memory-ttl": Plan(memory.evicted_ttl, "evicted keys", 2000, 20, "keys evicted"),
    "crowd": Plan(crowd.crowd, "runs", 1000, 30, "runs"),
    "script-flush": Plan(network.script_flush, "seconds", 120, 2, "seconds"),
}
