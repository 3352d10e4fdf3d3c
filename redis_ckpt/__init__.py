"""The LangGraph checkpointer for plain Redis and Valkey."""

from redis_ckpt._ops.threads import ThreadInfo
from redis_ckpt.aio import AsyncRedisSaver
from redis_ckpt.errors import CheckpointerError, ClosedError, DamagedCheckpointError, StorageVersionError
from redis_ckpt.saver import RedisSaver

__version__ = "0.1.0"

__all__ = [
    "AsyncRedisSaver",
    "CheckpointerError",
    "ClosedError",
    "DamagedCheckpointError",
    "RedisSaver",
    "StorageVersionError",
    "ThreadInfo",
    "__version__",
]
