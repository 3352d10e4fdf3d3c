"""One way to call a saver of either colour, with the time that the call itself took.

An async call is timed inside the event loop, between the await and its result, so that starting and stopping the loop
counts for nobody.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from time import perf_counter
from typing import Any

from bench.workloads import Saver


class Clock:
    """Adds up the seconds spent in savers. As pytest-benchmark's timer it leaves out what prepares a call."""

    def __init__(self) -> None:
        self.elapsed = 0.0
        self.__name__ = "time inside the saver"

    def __call__(self) -> float:
        return self.elapsed


CLOCK = Clock()


class Driver(ABC):
    """A saver with its clock: `driver("put", *arguments)` calls `put` or `aput`; lists are read to their end."""

    is_async = False

    def __init__(self, saver: Saver) -> None:
        self.saver = saver

    @abstractmethod
    def __call__(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Call the method, wait for its end and add its time to the clock."""

    def seconds(self, method: str, *args: Any, **kwargs: Any) -> float:
        """Call the method and answer how long it took."""
        before = CLOCK.elapsed
        self(method, *args, **kwargs)
        return CLOCK.elapsed - before


class Blocking(Driver):
    """Drives the blocking methods."""

    def __call__(self, method: str, *args: Any, **kwargs: Any) -> Any:
        call = getattr(self.saver, method)
        before = perf_counter()
        result = call(*args, **kwargs)
        if method == "list":
            result = list(result)
        CLOCK.elapsed += perf_counter() - before
        return result


class Awaiting(Driver):
    """Drives the async methods on a loop of its own, which stands still between two calls."""

    is_async = True

    def __init__(self, saver: Saver, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(saver)
        self.loop = loop

    def __call__(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return self.loop.run_until_complete(self._timed(getattr(self.saver, f"a{method}"), args, kwargs))

    async def _timed(self, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        before = perf_counter()
        called = call(*args, **kwargs)
        result = await called if isinstance(called, Coroutine) else [item async for item in called]
        CLOCK.elapsed += perf_counter() - before
        return result
