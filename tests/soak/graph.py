"""A real graph for the soak: a delta channel, a subgraph that each turn calls anew, and a question that waits."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Annotated, Any

from langchain_core.runnables import RunnableConfig
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import START, StateGraph
from langgraph.pregel import Pregel
from langgraph.types import Command, interrupt
from typing_extensions import TypedDict

from tests.soak.content import BrokenError
from tests.soak.lines import Hand
from tests.soak.writers import Writer

TURNS = 12  # of one thread

App = Pregel[Any, Any, Any, Any]


def extend(state: list[str], writes: Sequence[list[str]]) -> list[str]:
    return [*state, *(item for write in writes for item in write)]


class Chat(TypedDict):
    """Two channels that must always agree."""

    log: Annotated[list[str], DeltaChannel(extend, snapshot_frequency=3)]
    plain: Annotated[list[str], operator.add]


def both(*items: str) -> Any:
    return {"log": list(items), "plain": list(items)}


def _step(name: str) -> Any:
    return lambda state: both(name)


def _ask(state: Chat) -> Any:
    return both(interrupt(len(state["plain"])))


def graph(saver: BaseCheckpointSaver[Any]) -> App:
    inner = StateGraph(Chat)
    inner.add_sequence([("x", _step("x")), ("y", _step("y"))])
    inner.add_edge(START, "x")
    called = inner.compile()

    def call(state: Chat, config: RunnableConfig) -> Any:
        return called.invoke(both(), config)

    outer = StateGraph(Chat)
    outer.add_sequence([("a", _step("a")), ("inner", call), ("ask", _ask), ("b", _step("b"))])
    outer.add_edge(START, "a")
    return outer.compile(checkpointer=saver)


class Talk:
    """The turns of one thread; between two calls it waits for an answer, or for the next turn."""

    def __init__(self, app: App, thread_id: str, log: Sequence[str] = (), *, waits: bool = False) -> None:
        self._app, self.thread_id = app, thread_id
        self.log, self.waits = list(log), waits

    @property
    def config(self) -> RunnableConfig:
        return {"configurable": {"thread_id": self.thread_id}}

    def move(self) -> None:
        """A turn up to its question, or the answer; then all that can be read must be what happened."""
        if self.waits:
            answer = f"answer {len(self.log)}"
            self._app.invoke(Command(resume=answer), self.config)
            self.log += [answer, "b"]
        else:
            question = f"turn {len(self.log)}"
            self._app.invoke(both(question), self.config)
            self.log += [question, "a", "x", "y"]
        self.waits = not self.waits
        self.verify()

    def verify(self) -> None:
        state = self._app.get_state(self.config)
        if state.values != both(*self.log):
            raise BrokenError(f"thread {self.thread_id!r}: {state.values!r} instead of {self.log!r}")
        asked = [i.value for i in state.interrupts]
        expected = [len(self.log)] if self.waits else []
        if asked != expected or state.next != (("ask",) if self.waits else ()):
            raise BrokenError(f"thread {self.thread_id!r}: it waits for {state.next} with {asked}, not {expected}")


class GraphWriter(Writer):
    """One that runs graphs beside."""

    def __init__(self, hand: Hand) -> None:
        super().__init__(hand)
        self._app = graph(hand.saver.raw_saver)
        self._talks = [self._talk() for _ in range(2)]
        self._ended: list[Talk] = []

    def _talk(self) -> Talk:
        return Talk(self._app, f"talk-{self.hand.next_name()}")

    def turn(self) -> None:
        if self.hand.chance(0.8):
            super().turn()
            return
        at = self.hand.random.randrange(len(self._talks))
        talk = self._talks[at]
        talk.move()
        self.hand.counts["turns of graphs"] += 1
        if len(talk.log) > TURNS * 6:
            self._ended.append(talk)
            self._talks[at] = self._talk()

    def talks(self) -> dict[str, tuple[list[str], bool]]:
        return {t.thread_id: (t.log, t.waits) for t in self._talks + self._ended if t.log}
