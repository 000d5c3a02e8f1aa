"""What a law looks at, and how it says that it is broken."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NoReturn

if TYPE_CHECKING:
    from scopekv.simulate.fuzz.flight import Flight
    from scopekv.simulate.fuzz.world import World


class Violation(Exception):
    """A law does not hold. `law` is its name."""

    def __init__(self, law: str, words: str) -> None:
        super().__init__(f"{law}: {words}")
        self.law = law


class Law:
    """One law. It sees what happens and keeps what it needs; it changes nothing."""

    name: ClassVar[str] = ""

    def read(self, world: World, flight: Flight, block: int, data: bytes, source: str) -> None:
        """A request took the bytes of its block number `block` from somewhere."""

    def ended(self, flight: Flight, *, died: bool) -> None:
        """A request was answered, or died with its engine."""

    def moment(self, world: World) -> None:
        """After each operation."""

    def rest(self, world: World) -> None:
        """At the end: nothing fails any more and nothing is under way."""

    def broken(self, words: str) -> NoReturn:
        raise Violation(self.name, words)
