"""delete_thread, delete_for_runs and prune.

Removing less than a thread is planned here and executed by the script `forget`, which does nothing if the
thread has changed since the plan was made; then the plan is made again. See `policies`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from redis_ckpt import _scripts, policies
from redis_ckpt._codec import RS, Header, decode_header
from redis_ckpt._config import thread_text
from redis_ckpt._flow import Flow, Plain
from redis_ckpt._keys import NOTHING, ThreadKeys, newer_ranges, plain_range, quote, run_key, thread_keys, unquote
from redis_ckpt._ops.threads import thread_ids
from redis_ckpt.errors import CheckpointerError, DamagedCheckpointError

HEADERS_PAGE = 500
THREADS_A_TRIP = 100
MOST_TRIES = 200  # of one thread that is being written to all the time

Keep: TypeAlias = "Callable[[dict[bytes, Header]], set[bytes]]"


def delete_threads(prefix: bytes, thread_ids: Sequence[str]) -> Flow[None]:
    """Remove threads with all their keys. One round trip for each 100."""
    texts = [thread_text(t) for t in thread_ids]
    for start in range(0, len(texts), THREADS_A_TRIP):
        yield [Plain(("UNLINK", *thread_keys(prefix, t))) for t in texts[start : start + THREADS_A_TRIP]]


def prune(prefix: bytes, thread_ids: Sequence[str], strategy: str) -> Flow[None]:
    """Prune threads, as the base class says."""
    if isinstance(thread_ids, (str, bytes)):
        raise TypeError("thread_ids must be a sequence of ids, not one text")
    if strategy not in ("keep_latest", "delete"):
        raise ValueError(f"unknown prune strategy {strategy!r}: it is 'keep_latest' or 'delete'")
    texts = [thread_text(t) for t in thread_ids]
    if strategy == "delete":
        yield from delete_threads(prefix, texts)
        return
    for thread_id in texts:
        yield from remove_all_but(prefix, thread_id, policies.keep_latest)


def delete_for_runs(prefix: bytes, run_ids: Sequence[str]) -> Flow[None]:
    """Remove what runs have written: the threads come from the runs' keys, else from a walk over all."""
    if isinstance(run_ids, (str, bytes)):
        raise TypeError("run_ids must be a sequence of ids, not one text")
    runs = [str(run_id) for run_id in run_ids if run_id]
    if not runs:
        return
    noted = yield [Plain(("SMEMBERS", run_key(prefix, run_id))) for run_id in runs]
    threads: Iterable[str]
    if all(noted):
        threads = sorted({unquote(thread) for each in noted for thread in each})
    else:  # a key that has expired, or runs of another saver
        threads = yield from thread_ids(prefix)
    gone = {quote(run_id) for run_id in runs}
    for thread_id in threads:
        yield from remove_all_but(prefix, thread_id, lambda headers: policies.without_runs(headers, gone))
    # The keys stay until they expire: savers that have noted a thread there would not note it again.


def remove_all_but(prefix: bytes, thread_id: str, keep: Keep) -> Flow[None]:
    """Remove all checkpoints of a thread that `keep` does not name, and the blobs that nothing else needs.

    Safe while the thread is being written to. What a step removed stays removed if a later one fails.
    """
    keys = thread_keys(prefix, thread_id)
    thread = yield from read_thread(prefix, thread_id)
    for _ in range(MOST_TRIES):
        if thread is None:
            return
        done = yield from _carry_out(keys, thread, policies.steps(thread, keep(thread.headers)))
        if done and thread.headers:
            late = yield from _late_writes(keys, thread)
            done = yield from _carry_out(keys, thread, late)
        if done:
            return
        thread = yield from _caught_up(prefix, thread_id, thread)
    raise CheckpointerError(
        f"thread {thread_id!r} changed {MOST_TRIES} times while it was being pruned: prune it again when it is "
        "quieter. It is whole; what was removed was no longer needed."
    )


def _carry_out(keys: ThreadKeys, thread: policies.Thread, steps: Iterable[policies.Step]) -> Flow[bool]:
    """Do the steps, and follow them in `thread`; False where the thread has changed meanwhile."""
    for step in list(steps):
        replies = yield [_scripts.forget(keys, thread.epoch, step.last, step.checkpoints, step.blobs)]
        if replies[0] == 0:
            return False
        thread.epoch = replies[0]
        thread.orphans.difference_update(step.blobs)
        for name in step.checkpoints:
            thread.headers.pop(name, None)
    return True


def _late_writes(keys: ThreadKeys, thread: policies.Thread) -> Flow[list[policies.Step]]:
    """Steps that remove the writes which came after their checkpoint was removed."""
    steps: list[policies.Step] = []
    after = b""
    while True:
        replies = yield [_scripts.strays(keys, after, HEADERS_PAGE)]
        after, *fields = replies[0]
        if late := policies.late(thread.headers, fields):
            steps.append(policies.Step(late, [], last=False))
        if not after:
            return steps


def read_thread(prefix: bytes, thread_id: str) -> Flow[policies.Thread | None]:
    """The heads of all checkpoints at one epoch, in pages; None if there are none."""
    keys = thread_keys(prefix, thread_id)
    for _ in range(MOST_TRIES):
        thread: policies.Thread | None = None
        after = b""
        while True:
            replies = yield [_scripts.headers(keys, HEADERS_PAGE, plain_range(after), NOTHING)]
            epoch, found, orphans, greatest = _parse(thread_id, replies[0])
            if not found and thread is None:
                if epoch:  # there are records, but the order that leads to them is lost
                    raise DamagedCheckpointError(thread_id, "", "", "the order of its checkpoints is")
                return None
            if thread is None:
                thread = policies.Thread(epoch, greatest, orphans=orphans)
            thread.headers |= {
                name: header for name, header in found.items() if policies.split(name)[1] <= thread.greatest_id
            }
            if len(found) < HEADERS_PAGE:
                break
            after = max(found)
        if epoch == thread.epoch:
            return thread
        newer = yield from _newer(prefix, thread_id, thread)
        if newer is not None:
            return newer
    raise CheckpointerError(f"thread {thread_id!r} changed {MOST_TRIES} times while its checkpoints were read")


def _caught_up(prefix: bytes, thread_id: str, thread: policies.Thread) -> Flow[policies.Thread | None]:
    newer = yield from _newer(prefix, thread_id, thread)
    if newer is not None:
        return newer
    return (yield from read_thread(prefix, thread_id))


def _newer(prefix: bytes, thread_id: str, thread: policies.Thread) -> Flow[policies.Thread | None]:
    """The thread with what came since, if that is nothing but newer checkpoints, put once each; else None."""
    own, others = newer_ranges(thread.greatest_id)
    keys = thread_keys(prefix, thread_id)
    replies = yield [_scripts.headers(keys, HEADERS_PAGE, own, others)]
    epoch, found, orphans, greatest = _parse(thread_id, replies[0])
    # Every put and every forget adds one to the epoch. If newer checkpoints account for all of it, nothing
    # else has happened.
    if not epoch or int(epoch) - int(thread.epoch) != len(found) or len(found) >= HEADERS_PAGE:
        return None
    return policies.Thread(epoch, greatest, thread.headers | found, orphans)


def _parse(thread_id: str, reply: list[Any]) -> tuple[bytes, dict[bytes, Header], set[bytes], bytes]:
    epoch, orphans, root_top, other_top = reply[:4]
    found: dict[bytes, Header] = {}
    for name, head in zip(reply[4::2], reply[5::2], strict=True):
        ns, checkpoint_id = (unquote(part) for part in policies.split(name))
        if head is None:
            raise DamagedCheckpointError(thread_id, ns, checkpoint_id, "its record is")
        found[name] = decode_header(head, f"checkpoint {checkpoint_id!r} of thread {thread_id!r}")
    return epoch, found, {o for o in orphans.split(RS) if o}, max(root_top, other_top)
