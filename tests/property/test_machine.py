"""Threads that are written, read, copied, pruned, swept and given deadlines in any order stay what the model says."""

from __future__ import annotations

import pytest
import redis
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.profiles import by_profile
from tests.property.edits import small_deltas as small_deltas
from tests.property.machine import SAVERS, Machine
from tests.savers import MakeSaver, in_one_colour, on_valkey

EXAMPLES = by_profile(90, 2000)
SECONDS = 1800.0  # the long profile, or the shrinking of a failure
STEPS = 20


def _play(make_saver: MakeSaver, raw: redis.Redis, examples: int, grows: bool = False) -> None:
    savers = {name: make_saver(**options) for name, options in SAVERS.items()}
    run_state_machine_as_test(
        lambda: Machine(savers, raw, grows),  # type: ignore[arg-type]  # it takes any maker of machines
        settings=settings(max_examples=examples, stateful_step_count=STEPS, print_blob=True),
    )


@pytest.mark.timeout(SECONDS)
@on_valkey
@in_one_colour
def test_random_lives(make_saver: MakeSaver, raw: redis.Redis) -> None:
    _play(make_saver, raw, EXAMPLES)


@pytest.mark.timeout(SECONDS)
@pytest.mark.usefixtures("small_deltas")
@on_valkey
@in_one_colour
def test_random_lives_of_values_that_grow(make_saver: MakeSaver, raw: redis.Redis) -> None:
    _play(make_saver, raw, EXAMPLES // 3, grows=True)


@pytest.mark.timeout(SECONDS)
def test_random_lives_on_every_server_in_both_colours(make_saver: MakeSaver, raw: redis.Redis) -> None:
    _play(make_saver, raw, EXAMPLES // 15)
