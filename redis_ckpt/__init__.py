"""The LangGraph checkpointer for plain Redis and Valkey."""

from redis_ckpt._expiry import TTL
from redis_ckpt._ops.stats import Held, NamespaceStats, ThreadStats, TotalStats
from redis_ckpt._ops.sweep import SweepReport
from redis_ckpt._ops.threads import ThreadInfo
from redis_ckpt.aio import AsyncRedisSaver
from redis_ckpt.errors import CheckpointerError, ClosedError, DamagedCheckpointError, StorageVersionError
from redis_ckpt.saver import RedisSaver

__version__ = "0.1.0"

__all__ = [
    "TTL",
    "AsyncRedisSaver",
    "CheckpointerError",
    "ClosedError",
    "DamagedCheckpointError",
    "Held",
    "NamespaceStats",
    "RedisSaver",
    "StorageVersionError",
    "SweepReport",
    "ThreadInfo",
    "ThreadStats",
    "TotalStats",
    "__version__",
]
