"""delete_thread, delete_for_runs and prune."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from redis_ckpt import policies
from redis_ckpt._config import thread_text
from redis_ckpt._flow import Flow, Plain
from redis_ckpt._keys import quote, run_key, thread_keys, unquote
from redis_ckpt._ops import Store
from redis_ckpt._ops.damage import of_thread
from redis_ckpt._ops.planning import remove_all_but
from redis_ckpt._ops.threads import thread_ids

THREADS_A_TRIP = 100


def thread_texts(given: Any) -> list[str]:
    """The ids of several threads, checked; each once.

    Raises:
        TypeError: One text was given, or something that is no sequence of ids.
        ValueError: An id is empty.
    """
    if isinstance(given, (str, bytes)):
        raise TypeError("thread_ids must be a sequence of ids, not one text")
    if not isinstance(given, Iterable):
        raise TypeError(f"thread_ids must be a sequence of ids, not {given!r}")
    return list(dict.fromkeys(thread_text(t) for t in given))


def delete_threads(prefix: bytes, thread_ids: Sequence[str]) -> Flow[None]:
    """Remove threads with all their keys. One round trip for each 100."""
    texts = [thread_text(t) for t in thread_ids]
    for start in range(0, len(texts), THREADS_A_TRIP):
        yield [Plain(("UNLINK", *thread_keys(prefix, t))) for t in texts[start : start + THREADS_A_TRIP]]


def prune(store: Store, thread_ids: Sequence[str], strategy: str) -> Flow[None]:
    """Prune threads, as the base class says."""
    texts = thread_texts(thread_ids)
    if strategy not in ("keep_latest", "delete"):
        raise ValueError(f"unknown prune strategy {strategy!r}: it is 'keep_latest' or 'delete'")
    if strategy == "delete":
        yield from delete_threads(store.prefix, texts)
        return
    for thread_id in texts:
        yield from of_thread(thread_id, remove_all_but(store, thread_id, policies.keep_latest))


def delete_for_runs(store: Store, run_ids: Sequence[str]) -> Flow[None]:
    """Remove what runs have written: the threads come from the runs' keys, else from a walk over all."""
    if isinstance(run_ids, (str, bytes)):
        raise TypeError("run_ids must be a sequence of ids, not one text")
    runs = [str(run_id) for run_id in run_ids if run_id]
    if not runs:
        return
    threads: Iterable[str]
    try:
        noted = yield [Plain(("SMEMBERS", run_key(store.prefix, run_id))) for run_id in runs]
        threads = sorted({unquote(thread) for each in noted for thread in each}) if all(noted) else ()
    except Exception as error:
        if not (isinstance(error, UnicodeError) or str(error).startswith("WRONGTYPE")):
            raise
        threads = ()  # somebody has changed a key: what it should say can be found out
    if not threads:  # a key that has expired, or runs of another saver
        threads = yield from thread_ids(store.prefix)
    gone = {quote(run_id) for run_id in runs}
    for thread_id in threads:
        keep = partial(policies.without_runs, runs=gone)
        yield from of_thread(thread_id, remove_all_but(store, thread_id, keep))
    # The keys stay until they expire: savers that have noted a thread there would not note it again.
