"""A short soak with every `make test`; the long one is a target of its own."""

from __future__ import annotations

import random

from tests.savers import on_valkey
from tests.servers import Server
from tests.soak.soak import campaign

SECONDS = 4.0


@on_valkey  # `make soak` has the others
def test_four_processes_write_while_one_sweeps(server: Server) -> None:
    result = campaign(server, SECONDS, seed=random.getrandbits(32))
    assert not result.failures, "\n".join(result.failures)
    assert result.threads > 10
    assert min(result.counts[name] for name in ("puts", "put_writes", "read back", "sweeps", "removed")) > 0
