"""Primaries that are killed again and again, each followed by a replica."""

from __future__ import annotations

import random
import time

from redis_ckpt import Ack
from tests.campaigns.results import Result, Setting, product
from tests.campaigns.runs import Runs, during
from tests.cluster.servers import Cluster
from tests.integration.long_runs import PATIENT
from tests.topology.sentinel import SentinelSetup

ACK = Ack(replicas=1, timeout=2.0)
LONGEST_PAUSE_SECONDS = 0.5  # in which runs go on before the next death


def sentinel_failovers(setting: Setting) -> Result:
    """Three sentinels, a primary and a replica; runs that wait for the replica's acknowledgement."""
    result = Result("failovers of a Sentinel service (primary killed), `ack=Ack(replicas=1)`")
    luck = random.Random(setting.seed)
    service = SentinelSetup(setting.kind, setting.folder)
    try:
        result.server = product(service.primary)

        def die(_: int) -> None:
            time.sleep(luck.uniform(0, LONGEST_PAUSE_SECONDS))
            service.fail_over()
            result.add({"failovers": 1}, [])

        with Runs(service.url, setting.folder, setting.width, retry=PATIENT, ack=ACK) as runs:
            during(runs, setting.amount, die)
        runs.finish(result)
    finally:
        service.stop()
    return result


def cluster_failovers(setting: Setting) -> Result:
    """Three primaries with a replica each; one after the other dies."""
    result = Result("failovers in a cluster of three primaries (one killed), `ack=Ack(replicas=1)`")
    luck = random.Random(setting.seed)
    cluster = Cluster(setting.kind, setting.folder, replicas=1)
    try:
        result.server = product(cluster.nodes[0])

        def die(_: int) -> None:
            time.sleep(luck.uniform(0, LONGEST_PAUSE_SECONDS))
            victim = luck.randrange(3)
            cluster.kill_primary(victim)
            cluster.wait_for_failover(victim)
            cluster.heal(victim)
            runs.checker.url = (
                cluster.url
            )  # its savers are new each time: of those who were there at first none may be left
            result.add({"failovers": 1}, [])

        with Runs(cluster.url, setting.folder, setting.width, retry=PATIENT, ack=ACK) as runs:
            during(runs, setting.amount, die)
        runs.finish(result)
    finally:
        cluster.stop()
    return result
