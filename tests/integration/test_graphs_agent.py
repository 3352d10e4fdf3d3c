"""A tool-loop agent: turns, durability, streaming and readers that go away."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from typing_extensions import TypedDict

from tests.integration.graphs import DURABILITIES, Builder, Durability, Play, thread, twice
from tests.savers import Facade


class Chat(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    calls: int


def model(state: Chat) -> dict[str, Any]:
    """A model that asks for one tool call per word of the last question, one after another, and then answers."""
    asked = max(i for i, m in enumerate(state["messages"]) if isinstance(m, HumanMessage))
    words = str(state["messages"][asked].content).split()
    results = [str(m.content) for m in state["messages"][asked:] if isinstance(m, ToolMessage)]
    calls = state.get("calls", 0) + 1
    if len(results) == len(words):
        return {"messages": [AIMessage(" ".join(results), id=f"ai-{calls}")], "calls": calls}
    call = {"name": "upper", "args": {"word": words[len(results)]}, "id": f"call-{calls}"}
    return {"messages": [AIMessage("", id=f"ai-{calls}", tool_calls=[call])], "calls": calls}


def tools(state: Chat) -> dict[str, Any]:
    last = state["messages"][-1]
    assert isinstance(last, AIMessage)
    return {
        "messages": [
            ToolMessage(call["args"]["word"].upper(), tool_call_id=call["id"], id=f"tool-{call['id']}")
            for call in last.tool_calls
        ]
    }


def more(state: Chat) -> str:
    last = state["messages"][-1]
    return "tools" if isinstance(last, AIMessage) and last.tool_calls else END


def agent() -> Builder:
    builder = StateGraph(Chat)
    builder.add_node("model", model)
    builder.add_node("tools", tools)
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", more, ["tools", END])
    builder.add_edge("tools", "model")
    return builder


def ask(text: str, number: int) -> dict[str, Any]:
    return {"messages": [HumanMessage(text, id=f"human-{number}")]}


@pytest.mark.parametrize("durability", DURABILITIES)
def test_agent_keeps_its_conversation_over_turns(saver: Facade, durability: Durability) -> None:
    def story(play: Play) -> None:
        app = play.app(agent())
        first = play.invoke(app, ask("two words", 1), thread(), durability=durability)
        assert first["messages"][-1].content == "TWO WORDS"
        second = play.invoke(app, ask("more", 2), thread(), durability=durability)
        assert [m.id for m in second["messages"]][:2] == ["human-1", "ai-1"]
        assert len(second["messages"]) == 10
        steps = [s.metadata["step"] for s in play.history(app, thread()) if s.metadata]
        assert steps == ([10, 5] if durability == "exit" else list(range(10, -2, -1)))

    twice(story, saver)


def test_two_conversations_do_not_meet(saver: Facade) -> None:
    def story(play: Play) -> None:
        app = play.app(agent())
        for turn, name in enumerate(("a", "b:c", "a:b", "c", "b:c", "a")):
            play.invoke(app, ask(f"hello {turn}", turn), thread(name))
        lengths = {name: len(play.state(app, thread(name)).values["messages"]) for name in ("a", "b:c", "a:b", "c")}
        assert lengths == {"a": 12, "b:c": 12, "a:b": 6, "c": 6}

    twice(story, saver, "a", "b:c", "a:b", "c")


def test_streamed_run_is_stored_as_it_was_shown(saver: Facade) -> None:
    modes = ["values", "updates", "checkpoints", "tasks", "debug"]

    def story(play: Play) -> None:
        app = play.app(agent())
        shown = play.stream(app, ask("go on", 1), thread(), stream_mode=modes)
        assert {mode for mode, _ in shown} == set(modes)
        play.stream(app, ask("again", 2), thread(), stream_mode="values")
        assert play.state(app, thread()).values["calls"] == 5
        stored = [s.config["configurable"]["checkpoint_id"] for s in play.history(app, thread())][::-1]
        told = [item["config"]["configurable"]["checkpoint_id"] for mode, item in shown if mode == "checkpoints"]
        assert told == stored[: len(told)]

    twice(story, saver)


def test_reader_that_leaves_a_stream_leaves_a_state_to_go_on_from(saver: Facade) -> None:
    def story(play: Play) -> None:
        app = play.app(agent())
        play.stream(app, ask("one two three", 1), thread(), stop_after=2, stream_mode="values", durability="sync")
        waiting = play.state(app, thread()).next
        assert waiting in {("model",), ("tools",)}
        done = play.invoke(app, None, thread())
        assert done["messages"][-1].content == "ONE TWO THREE"
        assert done["calls"] == 4

    twice(story, saver)


def test_breakpoints_before_and_after_nodes(saver: Facade) -> None:
    def story(play: Play) -> None:
        app = play.app(agent(), interrupt_before=["tools"])
        play.invoke(app, ask("x y", 1), thread())
        assert play.state(app, thread()).next == ("tools",)
        after = play.app(agent(), interrupt_after=["tools"])
        play.invoke(after, None, thread())
        assert play.state(after, thread()).next == ("model",)
        plain = play.app(agent())
        assert play.invoke(plain, None, thread())["messages"][-1].content == "X Y"
        play.history(plain, thread())

    twice(story, saver)
