"""Values that are made anew for each request, as cheap as can be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def light_value(*, repr: bool = True) -> Callable[[type[T]], type[T]]:  # noqa: A002 - as there
    """As `dataclass(frozen=True, slots=True, repr=repr)`, but held frozen by mypy alone.

    What refuses to be set at run time sets its own fields through `object.__setattr__`, one call
    each: with 6 fields that is four times the cost of this, and a request makes some 50 such
    values. Not for what carries a permission (scopes, principals, tickets): those stay frozen.
    """
    return dataclass(slots=True, unsafe_hash=True, repr=repr)
