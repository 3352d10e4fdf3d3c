"""What a forked child does not share with its parent."""

from __future__ import annotations

import json
import os
import random

from redis_ckpt import _process
from redis_ckpt._scripts import _new_epoch
from redis_ckpt._versions import next_version


def drawn_by_child() -> list[int]:
    """What a forked child draws first."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write, json.dumps([_process.dice.getrandbits(52) for _ in range(3)]).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        drawn: list[int] = json.load(pipe)
    return drawn


def test_no_child_draws_what_another_process_has_drawn() -> None:
    draws = [drawn_by_child() for _ in range(3)]
    draws.append([_process.dice.getrandbits(52) for _ in range(3)])
    assert len({each for drawn in draws for each in drawn}) == 12


def test_a_seed_of_the_callers_changes_nothing() -> None:
    drawn: set[object] = set()
    for _ in range(5):
        random.seed(1)
        drawn |= {_new_epoch(), next_version(None)}
    assert len(drawn) == 10


def test_what_is_gone_is_told_nothing() -> None:
    class Told:
        def begin_in_child(self) -> None:
            os._exit(7)

    one = Told()
    _process.at_fork(one)
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    del one
    drawn_by_child()
