"""on_damage="previous": where the newest checkpoint of a namespace is damaged, the newest that is whole."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple

from redis_ckpt import _scripts
from redis_ckpt._config import Target, target_of
from redis_ckpt._flow import Flow
from redis_ckpt._keys import listing_ranges, split_checkpoint_field, thread_keys
from redis_ckpt._ops import Store
from redis_ckpt._ops.read import get_tuple
from redis_ckpt.errors import DamagedCheckpointError

IDS_A_TRIP = 16

logger = logging.getLogger("redis_ckpt")


def get_tuple_or_previous(store: Store, config: RunnableConfig) -> Flow[CheckpointTuple | None]:
    """The latest checkpoint, or the newest older one that is whole. One round trip; where the latest is damaged one
    more for each 16 checkpoints, and one for each that is damaged.

    Raises:
        DamagedCheckpointError: That of the latest, if none is whole; that of the one whose id is given.
    """
    target = target_of(config)
    try:
        return (yield from get_tuple(store, config))
    except DamagedCheckpointError as error:
        if target.checkpoint_id:
            raise
        damage = error
    skip(store, damage)
    below: tuple[str, str] | None = None
    while page := (yield from _ids_below(store, target, below)):
        for checkpoint_id in page:
            named = {**config["configurable"], "checkpoint_id": checkpoint_id}
            try:
                found = yield from get_tuple(store, {**config, "configurable": named})
            except DamagedCheckpointError as error:
                skip(store, error)
            else:
                if found is not None:
                    return found
        below = page[-1], target.checkpoint_ns
    raise damage


def _ids_below(store: Store, target: Target, below: tuple[str, str] | None) -> Flow[list[str]]:
    own, others = listing_ranges(target.checkpoint_ns, below, None)
    keys = thread_keys(store.prefix, target.thread_id)
    (reply,) = yield [_scripts.list_page(keys, IDS_A_TRIP, True, own, others)]
    return [split_checkpoint_field(field)[1] for field in _fields(reply)]


def _fields(reply: list[bytes]) -> Iterable[bytes]:
    """The fields in a reply of bare records, each with its record and no writes."""
    at = 2
    for _ in range(int(reply[1])):
        yield reply[at]
        at += 3 + 2 * int(reply[at + 2])


def skip(store: Store, damage: DamagedCheckpointError) -> None:
    """Say in the log, once for each checkpoint, that it was passed over."""
    name = f"{damage.checkpoint_ns}\0{damage.checkpoint_id}\0{damage.thread_id}"
    if not store.guards.spoken_of.get(name):
        store.guards.spoken_of.put(name, True)
        logger.warning('on_damage="previous": passed over: %s', damage)
