"""The writers of the soak: what each of the processes writes, turn by turn."""

from __future__ import annotations

from typing import NamedTuple

from langgraph.checkpoint.base.id import uuid6

from tests.savers import cfg
from tests.soak.content import LATE, BrokenError, check
from tests.soak.lines import Crowd, Hand, Line

SHARED = ("shared-1", "shared-2", "shared-3")
BRIEF = "brief-"
BRANCHES = "-branches"
PINNED = "pinned"
OWN_LIFE_MS = 10_000_000
OWN_LIFE = str(OWN_LIFE_MS)


class Report(NamedTuple):
    """What a process did, and what must be there at the end."""

    counts: dict[str, int]
    failures: list[str]
    heads: list[tuple[str, str, str, list[str]]]  # thread, namespace, id, and the tasks whose writes wait there
    newest: dict[str, str]  # thread -> the greatest id that this process has put into its root namespace
    talks: dict[str, tuple[list[str], bool]]  # thread of a graph -> its log, whether it waits
    lives: dict[str, str]  # thread with a life of its own -> PINNED or OWN_LIFE; "" is the life that the savers give


class Private:
    """A thread of one writer, with subgraph calls, deletions, copies and a life of its own."""

    def __init__(self, hand: Hand, thread_id: str) -> None:
        self.hand, self.saver, self.thread_id = hand, hand.saver, thread_id
        self.root = Line(hand, thread_id)
        self.side = Line(hand, thread_id, "side")  # a subgraph that keeps its state
        self.life = ""
        self.copied: tuple[str, str] | None = None  # the copy and its newest id

    def turn(self) -> None:
        hand = self.hand
        if self.root.head.id and hand.chance(0.3):
            self._call()
        elif hand.chance(0.25):
            self.side.step()
        else:
            self.root.step()
        if hand.chance(0.01):
            self._begin_anew()
        if self.root.head.id and hand.chance(0.02):
            self._copy()
        if self.root.head.id and hand.chance(0.02):
            self._live_on()

    def _call(self) -> None:
        """A subgraph call: its namespace stays while the root checkpoint that began it is the newest, or to come."""
        hand = self.hand
        to_come = str(uuid6()) if hand.chance(0.3) else ""
        parents = {"": to_come or self.root.head.id}
        lines = [Line(hand, self.thread_id, f"agent:{hand.next_name()}", parents)]
        for _ in range(hand.random.randint(1, 6)):
            lines[0].step()
        if hand.chance(0.3):
            parents = {**parents, lines[0].ns: lines[0].head.id}
            lines.append(Line(hand, self.thread_id, f"{lines[0].ns}|tool:{hand.next_name()}", parents))
            lines[1].step()
        if to_come:
            self.root.step(to_come)
            lines = lines if self.root.head.id == to_come else []
        for line in lines:
            line.verify()
        hand.counts["calls"] += 1

    def _begin_anew(self) -> None:
        self.saver.delete_thread(self.thread_id)
        self.root.begin_anew()
        self.side.begin_anew()
        self.life = ""
        if self.saver.get_tuple(cfg(self.thread_id)) is not None:
            raise BrokenError(f"thread {self.thread_id!r} is there after it was deleted")
        self.hand.counts["deleted"] += 1

    def _copy(self) -> None:
        copy = f"{self.thread_id}-copy"
        self.saver.delete_thread(copy)
        self.saver.copy_thread(self.thread_id, copy)
        self.copied = copy, self.root.head.id
        found = self.saver.get_tuple(cfg(copy))
        if found is None or found.checkpoint["id"] != self.root.head.id:
            raise BrokenError(f"thread {copy!r}: its newest checkpoint should be {self.root.head.id!r}")
        check(self.saver, found)
        self.hand.counts["copied"] += 1

    def _live_on(self) -> None:
        """Another life for the thread: later writes of any process keep it."""
        choice = self.hand.random.choice([PINNED, OWN_LIFE, ""])
        if choice == PINNED:
            done = self.saver.call("persist", self.thread_id)
        else:
            done = self.saver.call("expire", self.thread_id, OWN_LIFE_MS / 1000 if choice else None)
        if not done:
            raise BrokenError(f"thread {self.thread_id!r} should be there, to expire or to stay")
        self.life = choice


class Writer:
    """Private threads, namespaces of its own in shared threads, and the root of shared threads."""

    def __init__(self, hand: Hand) -> None:
        self.hand = hand
        self.privates = [Private(hand, f"{hand.name}-{n}") for n in range(2)]
        self.own = [Line(hand, thread, hand.name) for thread in SHARED]
        self.crowds = [Crowd(hand, thread) for thread in SHARED]
        self.branching = Line(hand, f"{hand.name}{BRANCHES}")
        self.pinned: dict[str, str] = {}  # brief thread -> its newest id
        self._briefs: list[Crowd] = []

    def turn(self) -> None:
        hand = self.hand
        kind = hand.random.random()
        if kind < 0.45:
            hand.random.choice(self.privates).turn()
        elif kind < 0.6:
            hand.random.choice(self.own).step()
        elif kind < 0.9:
            self._crowd()
        elif kind < 0.98:
            self._branches()
        else:
            self._brief()

    def _crowd(self) -> None:
        crowd = self.hand.random.choice(self.crowds)
        crowd.step()
        if self.hand.chance(0.2):  # anybody's next root checkpoint may end this call
            call = Crowd(self.hand, crowd.thread_id, f"agent:{self.hand.next_name()}", {"": crowd.newest})
            for _ in range(self.hand.random.randint(1, 3)):
                call.step()

    def _branches(self) -> None:
        self.branching.step()
        for _ in range(5):
            self.branching.branch()

    def _brief(self) -> None:
        """A thread that is written once and then left alone, until it is swept as idle; a pin keeps it."""
        hand = self.hand
        brief = Crowd(hand, f"{BRIEF}{hand.next_name()}")
        for _ in range(3):
            brief.step()
        if hand.chance(0.1) and hand.saver.call("persist", brief.thread_id):
            self.pinned[brief.thread_id] = brief.newest
        elif self._briefs and hand.chance(0.5):  # writes of a slow worker: their thread may be gone
            late = hand.random.choice(self._briefs)
            hand.saver.put_writes(late.config(late.newest), [(LATE, LATE)], LATE)
        self._briefs.append(brief)
        hand.counts["brief"] += 1

    def report(self, failures: list[str]) -> Report:
        """What was done; what must be there is known only if nothing failed."""
        if failures:
            return Report(dict(self.hand.counts), failures, [], {}, {}, {})
        lines = [line for p in self.privates for line in (p.root, p.side)] + [*self.own, self.branching]
        heads = [
            (line.thread_id, line.ns, line.head.id, sorted({w[0] for w in line.head.asked}))
            for line in lines
            if line.head.id
        ]
        copies = [p.copied for p in self.privates if p.copied]
        newest = {c.thread_id: c.newest for c in self.crowds if c.newest} | dict(copies) | self.pinned
        lives = {p.thread_id: p.life for p in self.privates if p.root.head.id} | dict.fromkeys(self.pinned, PINNED)
        return Report(dict(self.hand.counts), failures, heads, newest, self.talks(), lives)

    def talks(self) -> dict[str, tuple[list[str], bool]]:
        return {}
