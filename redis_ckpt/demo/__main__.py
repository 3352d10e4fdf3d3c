"""Tells the story of an agent that is killed and goes on; exits with 1 if a promise was not held."""

from __future__ import annotations

import argparse
import importlib.util
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # what the extra brings is imported when it is known to be there
    from redis_ckpt.demo.screen import Screen
    from redis_ckpt.demo.story import Stage


def main(argv: list[str] | None = None) -> int:
    """The command line of the demo; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m redis_ckpt.demo", description=__doc__)
    parser.add_argument(
        "--lose-writes",
        action="store_true",
        help="throw away what the killed worker had stored, to see that the checks notice it",
    )
    options = parser.parse_args(argv)
    missing = [name for name in ("langgraph", "rich") if importlib.util.find_spec(name) is None]
    if missing:
        return _complain(f"{' and '.join(missing)} missing; pip install 'redis-ckpt[demo]'", 2)
    with tempfile.TemporaryDirectory(prefix="redis-ckpt-") as folder:
        return _perform(Path(folder), lose_writes=options.lose_writes)


def _perform(folder: Path, *, lose_writes: bool) -> int:
    import redis

    from redis_ckpt import RedisSaver
    from redis_ckpt.demo.screen import Screen
    from redis_ckpt.demo.story import Stage, StoryError
    from redis_ckpt.embedded import EmbeddedServer

    with (
        EmbeddedServer.open(folder / "data") as server,
        RedisSaver(server.url) as saver,
        redis.Redis.from_url(server.url) as raw,
        Stage(server.url, folder / "journal", saver, raw) as stage,
    ):
        try:
            return _tell(stage, Screen(), lose_writes=lose_writes)
        except StoryError as error:
            return _complain(str(error), 1)
        except KeyboardInterrupt:
            return _complain("stopped", 130)


def _tell(stage: Stage, screen: Screen, *, lose_writes: bool) -> int:
    from redis_ckpt.demo.story import QUOTES, promises

    begin, told = time.monotonic(), stage.told
    screen.title(stage.server())
    with screen.busy("worker 1 asks for quotes"):
        stage.killed_in_the_middle()
    stored = len(told.stored_at_kill)
    screen.act(1, told, f"asks {len(QUOTES)} suppliers in parallel; {stored} quotes are stored when SIGKILL ends it")
    if lose_writes:
        stage.lose_writes()
    with screen.busy("worker 2 goes on"):
        stage.resumed()
    again = sum(told.runs(quote, 2) for quote in QUOTES)
    screen.act(2, told, f'asks {again} of them again, then waits: "{told.question}"')
    with screen.busy("worker 3 brings the answer"):
        stage.approved()
    screen.act(3, told, f'brings the answer "yes": {told.answer}')
    stage.looked_into()
    screen.tables(told)
    checks = promises(told)
    screen.verdict(checks, time.monotonic() - begin)
    return 0 if all(check.held for check in checks) else 1


def _complain(text: str, code: int) -> int:
    print(f"redis_ckpt.demo: {text}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
