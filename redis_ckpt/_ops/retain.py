"""keep_last: a put that leaves too many checkpoints in its namespace removes the oldest, several at once."""

from __future__ import annotations

import logging
from collections import Counter
from functools import partial

from langchain_core.runnables import RunnableConfig

from redis_ckpt import policies
from redis_ckpt._flow import Flow
from redis_ckpt._keys import quote
from redis_ckpt._ops import Store
from redis_ckpt._ops.damage import of_thread
from redis_ckpt._ops.planning import remove_all_but
from redis_ckpt._ops.write import Stored
from redis_ckpt._recent import Recent
from redis_ckpt.errors import CheckpointerError

MOST_TRIES = 5  # a thread that changes all the time is left to the next put

logger = logging.getLogger("redis_ckpt")


def slack(keep_last: int) -> int:
    """How many checkpoints more than wanted there may be: each removal then takes at least as many at once."""
    return max(4, keep_last // 4)


class Retention:
    """How many checkpoints of a namespace a saver keeps, and where it has found that more must stay."""

    def __init__(self, keep_last: int) -> None:
        self.keep_last = keep_last
        # Where more stay than are wanted, for the sake of others, each put would else begin a removal of nothing.
        self._needed: Recent[tuple[str, bytes], int] = Recent()

    def is_due(self, stored: Stored) -> bool:
        """Whether the namespace of a put has grown enough to remove something."""
        target = stored.target
        needed = self._needed.get((target.thread_id, quote(target.checkpoint_ns))) or 0
        return stored.in_namespace > max(self.keep_last, needed) + slack(self.keep_last)

    def kept(self, thread_id: str, thread: policies.Thread) -> policies.Kept:
        """What stays; remembers where that is more than is wanted."""
        kept = policies.retained(thread, self.keep_last)
        for ns, count in Counter(policies.split(name)[0] for name in kept.checkpoints).items():
            if count > self.keep_last:
                self._needed.put((thread_id, ns), count)
            else:
                self._needed.forget((thread_id, ns))
        return kept


def put_and_retain(store: Store, retention: Retention | None, put: Flow[Stored]) -> Flow[RunnableConfig]:
    """A put, and now and then the removal of what is more than is kept."""
    stored = yield from put
    if retention is not None and retention.is_due(stored):
        thread_id, limit = stored.target.thread_id, retention
        try:
            gone = remove_all_but(store, thread_id, partial(limit.kept, thread_id), tries=MOST_TRIES)
            yield from of_thread(thread_id, gone)
        except CheckpointerError as error:
            # The checkpoint is stored; a thread that is damaged elsewhere, or busy, is no reason to end its run.
            logger.warning("keep_last=%d: older checkpoints were not removed: %s", limit.keep_last, error)
    return stored.target.config()
