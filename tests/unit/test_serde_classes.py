"""The fast serialiser with a langchain-core whose message classes are not those of today."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal, TypeAlias

import pytest
from langchain_core.messages import human
from langchain_core.messages.human import HumanMessage
from pydantic import AfterValidator, BaseModel, Field, PrivateAttr, computed_field, field_serializer, model_validator

from redis_ckpt import _messages
from tests.property.serialisers import alike, check_values, forget_classes, pair

Replace: TypeAlias = "Callable[[type[BaseModel] | None], None]"


class Base(BaseModel):
    """What a message of another langchain-core may be."""

    model_config = {"extra": "allow"}
    content: str | list[str | dict[Any, Any]]
    additional_kwargs: dict[Any, Any] = Field(default_factory=dict)
    type: Literal["human"] = "human"
    id: str | None = Field(default=None, coerce_numbers_to_str=True)

    def __init__(self, content: Any = None, **kwargs: Any) -> None:
        super().__init__(content=content, **kwargs)


class Gained(Base):
    mood: str = "fine"
    scores: list[float] = Field(default_factory=list)


class Lost(BaseModel):
    model_config = {"extra": "allow"}
    content: str


class OtherKind(Base):
    content: int | bytes  # type: ignore[assignment]


class Validated(Base):
    @model_validator(mode="before")
    @classmethod
    def strip(cls, values: dict[str, Any]) -> dict[str, Any]:
        return {**values, "content": str(values["content"]).strip()}


class QuietlyValidated(Base):
    @model_validator(mode="before")
    @classmethod
    def coerce_args(cls, values: dict[str, Any]) -> dict[str, Any]:  # a known name that does something new
        return {**values, "content": str(values["content"]).strip()}


class Annotating(Base):
    content: Annotated[str, AfterValidator(str.upper)]


class Initialised(Base):
    def __init__(self, content: Any = None, **kwargs: Any) -> None:
        super().__init__(content=f"<{content}>", **kwargs)


class Serialised(Base):
    @field_serializer("content")
    def shout(self, content: Any) -> str:
        return str(content).upper()


class Computed(Base):
    @computed_field  # type: ignore[prop-decorator]
    @property
    def size(self) -> int:
        return len(self.content)


class Private(Base):
    _seen: int = PrivateAttr(default=3)


class Dumped(Base):
    def model_dump(self, **kwargs: Any) -> dict[str, Any]:
        return {"content": "dumped"}


class Excluded(Base):
    id: str | None = Field(default=None, exclude=True)


class Aliased(Base):
    id: str | None = Field(default=None, alias="identity")


class Configured(Base):
    model_config = {"extra": "allow", "str_strip_whitespace": True}


class Ignoring(Base):
    model_config = {"extra": "ignore"}


class PostInit(Base):
    def model_post_init(self, context: Any, /) -> None:
        self.content = "set afterwards"


FAST = (Base, Gained, Lost)
# These are left to the parent.
SLOW = (OtherKind, Private, Annotating, Serialised, Computed, Dumped, Excluded, Aliased, Configured, Ignoring)
# These are packed, but nothing is known of their construction.
CONSTRUCTED = (Validated, QuietlyValidated, Initialised, PostInit)


@pytest.fixture
def replace(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[type[BaseModel] | None], None]]:
    """Puts a class in the place of HumanMessage, as another version of langchain-core would; None: there is none."""
    renamed: list[tuple[type[BaseModel], str]] = []

    def put(cls: type[BaseModel] | None) -> None:
        forget_classes()
        if cls is None:
            monkeypatch.delattr(human, "HumanMessage")
            return
        renamed.append((cls, cls.__name__))
        cls.__name__, cls.__module__ = "HumanMessage", human.__name__
        monkeypatch.setattr(human, "HumanMessage", cls)

    yield put
    for cls, name in renamed:
        cls.__name__, cls.__module__ = name, __name__
    forget_classes()


@pytest.mark.parametrize("cls", FAST + SLOW + CONSTRUCTED, ids=lambda cls: cls.__name__)
def test_a_class_that_has_changed_is_read_and_written_as_by_the_parent(replace: Replace, cls: Any) -> None:
    replace(cls)
    content: Any = 5 if cls is OtherKind else " Text "
    for message in (
        cls(content=content),
        cls(content=content, id="1", more=[1]),
        cls(content=content, additional_kwargs={"k": {"z": 1}}),
        cls.model_construct(content=content, type="other"),
    ):
        check_values([message], *pair())
    known = _messages.message_of(cls)
    assert (known is not None) is (cls not in SLOW)
    assert (known is not None and known.restores) is (cls in FAST)


def test_bytes_from_before_a_field_came_or_went_are_read_as_by_the_parent(replace: Replace) -> None:
    fast, parent = pair()
    old = fast.dumps_typed([HumanMessage("x", id="1"), HumanMessage("y", example=True)])
    for cls in (Gained, Lost, OtherKind, Validated):
        replace(cls)
        ours, theirs = fast.loads_typed(old), parent.loads_typed(old)
        assert alike(ours, theirs)
        assert type(ours[0]) is cls


def test_a_class_that_is_gone_leaves_what_was_stored(replace: Replace) -> None:
    fast, parent = pair()
    old = fast.dumps_typed([HumanMessage("x", id="1")])
    replace(None)
    assert alike(fast.loads_typed(old), parent.loads_typed(old))
    assert fast.loads_typed(old)[0]["content"] == "x"


def test_a_class_that_is_replaced_while_it_is_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    fast, parent = pair()
    old = fast.dumps_typed([HumanMessage("x", id="1")])
    assert type(fast.loads_typed(old)[0]) is HumanMessage
    monkeypatch.setattr(human, "HumanMessage", Gained)
    assert type(fast.loads_typed(old)[0]) is Gained
    assert alike(fast.loads_typed(old), parent.loads_typed(old))
