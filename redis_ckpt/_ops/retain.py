"""keep_last: a put that leaves too many checkpoints in its namespace removes the oldest, several at once."""

from __future__ import annotations

import logging

from langchain_core.runnables import RunnableConfig

from redis_ckpt import policies
from redis_ckpt._flow import Flow
from redis_ckpt._ops import Store
from redis_ckpt._ops.planning import remove_all_but
from redis_ckpt._ops.write import Stored
from redis_ckpt.errors import CheckpointerError

MOST_TRIES = 5  # a thread that changes all the time is left to the next put

logger = logging.getLogger("redis_ckpt")


def slack(keep_last: int) -> int:
    """How many checkpoints more than wanted there may be: each removal then takes at least as many at once."""
    return max(4, keep_last // 4)


def is_due(keep_last: int, stored: Stored) -> bool:
    """Whether the namespace of a put has grown enough to remove something."""
    return stored.in_namespace > keep_last + slack(keep_last)


def put_and_retain(store: Store, keep_last: int | None, put: Flow[Stored]) -> Flow[RunnableConfig]:
    """A put, and now and then the removal of what is more than is kept."""
    stored = yield from put
    if keep_last is not None and is_due(keep_last, stored):
        thread_id = stored.target.thread_id
        try:
            yield from remove_all_but(
                store, thread_id, lambda thread: policies.retained(thread, keep_last), tries=MOST_TRIES
            )
        except CheckpointerError as error:
            # The checkpoint is stored; a thread that is damaged elsewhere, or busy, is no reason to end its run.
            logger.warning("keep_last=%d: older checkpoints were not removed: %s", keep_last, error)
    return stored.target.config()
