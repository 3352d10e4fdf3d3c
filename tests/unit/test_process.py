"""What tells a forked child from its parent."""

from __future__ import annotations

import os
import random

from redis_ckpt._process import PROCESS
from redis_ckpt._scripts import _new_epoch
from redis_ckpt._versions import next_version


def told_by_child() -> tuple[int, list[int]]:
    """The number of a forked child, and what it draws first."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        drawn = [PROCESS.dice.getrandbits(52) for _ in range(3)]
        os.write(write, repr((PROCESS.number, drawn)).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        number, drawn = eval(pipe.read())
    return number, drawn


def test_a_child_has_a_number_and_dice_of_its_own() -> None:
    state = PROCESS.dice.getstate()
    children = [told_by_child() for _ in range(3)]
    assert {number for number, _ in children} == {PROCESS.number + 1}
    draws = [drawn for _, drawn in children]
    assert PROCESS.dice.getstate() == state
    draws.append([PROCESS.dice.getrandbits(52) for _ in range(3)])
    assert len({each for drawn in draws for each in drawn}) == 12


def test_a_seed_of_the_callers_changes_nothing() -> None:
    drawn = set()
    for _ in range(5):
        random.seed(1)
        drawn |= {_new_epoch(), next_version(None)}
    assert len(drawn) == 10
