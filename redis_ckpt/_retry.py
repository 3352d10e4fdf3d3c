"""Patience: what is sent once more, how often, and after which pauses. Every script is safe to repeat."""

from __future__ import annotations

import random
import ssl
from collections.abc import Iterator
from dataclasses import dataclass

TRANSIENT = frozenset(
    {
        "ConnectionError",  # with what is derived from it: LOADING, a service of Sentinel without a primary
        "TimeoutError",
        "ReadOnlyError",
        "TryAgainError",
        "ClusterDownError",
        "ClusterError",  # so redis-py says that it was sent to and fro too often
        "MasterDownError",
        "SlotNotCoveredError",
    }
)
"""Names, since redis-py and valkey-py each have their own classes. What they stand for is over after a while."""
LASTING = frozenset({"AuthenticationError", "AuthorizationError", "MaxConnectionsError"})  # derived, but not over


def is_transient(error: object) -> bool:
    """Whether an error, raised or replied, may be gone when the same is sent once more."""
    if not isinstance(error, Exception):
        return False
    if "ClusterException" in type(error).__name__:  # no node could be asked, or something that does not pass
        return is_transient(error.__cause__)
    if isinstance(error.__cause__ or error.__context__, ssl.SSLCertVerificationError):
        return False
    names = {base.__name__ for base in type(error).__mro__}
    return not names.isdisjoint(TRANSIENT) and names.isdisjoint(LASTING)


@dataclass(frozen=True)
class Retry:
    """How often a round trip is sent once more that has failed for a while: a lost connection, a timeout, a failover.

    The pauses grow to twice the one before, and of each a random part is waited, so that workers do not come back all
    at once. The defaults wait 3.3 seconds on the average and 6.6 at the most before they give up; what is left then
    is raised as it is.

    Args:
        attempts: Times that it is sent once more; 0 for none.
        base_seconds: The first pause at most.
        cap_seconds: Any pause at most.

    Raises:
        TypeError: A value is no number.
        ValueError: A value is negative.
    """

    attempts: int = 10
    base_seconds: float = 0.05
    cap_seconds: float = 1.0

    def __post_init__(self) -> None:
        if not isinstance(self.attempts, int) or isinstance(self.attempts, bool):
            raise TypeError(f"attempts of Retry must be an int, not {self.attempts!r}")
        if self.attempts < 0:
            raise ValueError(f"attempts of Retry must not be negative, not {self.attempts!r}")
        for name in ("base_seconds", "cap_seconds"):
            value = getattr(self, name)
            if not isinstance(value, (int, float)) or isinstance(value, bool):
                raise TypeError(f"{name} of Retry must be a number of seconds, not {value!r}")
            if not 0 <= value < float("inf"):
                raise ValueError(f"{name} of Retry must be finite and not negative, not {value!r}")

    def pauses(self) -> Iterator[float]:
        """Seconds to wait before each further attempt."""
        for n in range(self.attempts):
            most = min(self.cap_seconds, self.base_seconds * 2.0 ** min(n, 60))
            yield random.uniform(0, most)
