"""Services of Sentinel, and savers of both colours on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from redis_ckpt import AsyncRedisSaver, RedisSaver
from tests.savers import Facade, LoopThread
from tests.servers import REAL_KINDS
from tests.topology.sentinel import SentinelSetup


@pytest.fixture(params=REAL_KINDS)
def service(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SentinelSetup]:
    """A service of its own for each test: to begin one takes less time than to heal one."""
    made = SentinelSetup(request.param, tmp_path)
    yield made
    made.stop()


@pytest.fixture(scope="session", params=REAL_KINDS)
def services(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SentinelSetup]:
    made = SentinelSetup(request.param, tmp_path_factory.mktemp("sentinel"))
    yield made
    made.stop()


@pytest.fixture
def calm_service(services: SentinelSetup) -> SentinelSetup:
    """An empty service for tests that kill nobody: they share it."""
    services.flush()
    return services


@pytest.fixture
def make(colour: str, loop_thread: LoopThread) -> Iterator[Callable[..., Facade]]:
    """Savers of this colour; closed at the end."""
    made: list[Facade] = []

    def build(redis_url: str | None = None, **options: Any) -> Facade:
        kind: Any = RedisSaver if colour == "sync" else AsyncRedisSaver
        made.append(Facade(kind(redis_url, **options), loop_thread))
        return made[-1]

    yield build
    for facade in made:
        facade.close()
