"""The methods of the contract that are about whole threads: copying and removing. Of both savers, in both colours."""

from __future__ import annotations

from collections.abc import Sequence

from redis_ckpt._config import Target
from redis_ckpt._flow import Flow
from redis_ckpt._ops import copying, remove
from redis_ckpt._ops.damage import told
from redis_ckpt._upkeep import Upkeep


class WholeThreads(Upkeep):
    """Copying and removing, beside what `Upkeep` adds to the contract."""

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread with all its namespaces, checkpoints and writes. A source that is not there is no error.

        Raises:
            ValueError: The target has checkpoints, or is the source. Nothing was written.

        Cost: 1 round trip and a look at the heads of the copy (1 for each 100 checkpoints). On a cluster, where the
        two lie on different nodes, the client moves them in chunks, and the copy shows when it is whole.
        Source: `BaseCheckpointSaver.copy_thread`.
        """
        self._run(self._copy_flow(source_thread_id, target_thread_id))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread: see `copy_thread`."""
        await self._arun(self._copy_flow(source_thread_id, target_thread_id))

    def _copy_flow(self, source_thread_id: str, target_thread_id: str) -> Flow[None]:
        flow = copying.copy_thread(self._store, source_thread_id, target_thread_id)
        return told(Target(source_thread_id, "", ""), flow, reads=False)

    def delete_thread(self, thread_id: str) -> None:
        """Remove a thread: no key of it is left.

        Cost: 1 round trip.
        Source: `BaseCheckpointSaver.delete_thread`.
        """
        self._run(remove.delete_threads(self._store.prefix, [thread_id]))

    async def adelete_thread(self, thread_id: str) -> None:
        """Remove a thread: see `delete_thread`."""
        await self._arun(remove.delete_threads(self._store.prefix, [thread_id]))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Remove the checkpoints that the given runs have written (`metadata["run_id"]`), with their writes.

        Values that other checkpoints refer to stay. Delta channels of checkpoints that stay lose the history that
        these runs have written: see the base class.

        Cost: 1 round trip for the runs' threads (kept for a day; older runs need a walk over all threads), then for
        each thread 1 for each 100 checkpoints and 1 for each 100 checkpoints, values and writes removed.
        Source: `BaseCheckpointSaver.delete_for_runs`.
        """
        self._run(remove.delete_for_runs(self._store, run_ids))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Remove what runs have written: see `delete_for_runs`."""
        await self._arun(remove.delete_for_runs(self._store, run_ids))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Prune threads. Runs may go on writing to them meanwhile.

        Args:
            thread_ids: The threads. One that is not there is no error.
            strategy: `"keep_latest"` keeps the newest checkpoint of each namespace with its values and writes, and
                what its delta channels are rebuilt from; the namespace of a subgraph call goes once the root
                checkpoint that started it does not stay. `"delete"` removes the threads.

        Raises:
            ValueError: The strategy is unknown or an id is empty; said before anything is read.

        Cost: for each thread 1 round trip for each 100 checkpoints, and 1 for each 100 checkpoints, values and writes
        removed.
        Source: `BaseCheckpointSaver.prune`.
        """
        self._run(remove.prune(self._store, thread_ids, strategy))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Prune threads: see `prune`."""
        await self._arun(remove.prune(self._store, thread_ids, strategy))
