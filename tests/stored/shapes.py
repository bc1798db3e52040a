"""Classes of a user's own, under names that never change: they are in what is stored."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, Flag, IntEnum
from typing import NamedTuple

from msgspec import Struct
from pydantic import BaseModel


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Right(Flag):
    READ = 1
    WRITE = 2


@dataclass(frozen=True)
class Order:
    id: str
    lines: tuple[int, ...] = ()


class Point(NamedTuple):
    x: float
    y: float


class Parcel(Struct, frozen=True):
    to: str
    weight: float = 1.0


class Invoice(BaseModel):
    number: int
    order: str = "none"


class Keyed:
    """Says itself what it is known by."""

    def __init__(self, name):
        self.name = name

    def __mainstay_key__(self):
        return {"name": self.name}


class Rejected(ValueError):
    """A failure of a user's own, with an attribute."""

    def __init__(self, message, order=None):
        super().__init__(message)
        self.order = order


class Gone(Exception):
    """A failure whose class cannot come back: it keeps something in a slot."""

    __slots__ = ("kept",)
