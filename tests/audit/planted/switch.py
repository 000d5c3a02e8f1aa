"""What a planted fault is: a seam of the real code that is replaced while a switch is on.

Product code knows nothing of it. Each switch breaks one thing; where another guard would hide that
(blocks that a purge deletes, salts under a ticket), it takes that guard away too and says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

Switch = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True)
class Planted:
    """One way to break the system.

    `what`: the fault, in one line. `caught_by`: the check that it must break, or how the names of
    such checks begin; a name begins with its audit's. `switch`: on for the life of the context; on
    before the deployment starts. `plugin`: False where only engines without the plugin can be
    broken so.
    """

    what: str
    caught_by: str
    switch: Switch
    plugin: bool = True

    @property
    def audit(self) -> str:
        """Which audit must catch it."""
        return self.caught_by.partition(".")[0]


@contextmanager
def patched(owner: object, **values: Any) -> Iterator[None]:
    """Replace attributes of a class or module, and put back what was there."""
    before: Mapping[str, Any] = {name: vars(owner)[name] for name in values}
    try:
        for name, value in values.items():
            setattr(owner, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(owner, name, value)


def switch(owner: object, **values: Any) -> Switch:
    """A switch of one seam that needs no state of its own."""
    return lambda: patched(owner, **values)


@contextmanager
def all_of(*parts: AbstractContextManager[None]) -> Iterator[None]:
    """Several seams as one switch."""
    with ExitStack() as stack:
        for part in parts:
            stack.enter_context(part)
        yield
