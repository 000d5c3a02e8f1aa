"""What is looked for: the same secret in each spelling in which somebody could have kept it."""

from __future__ import annotations

import base64
import re
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

SHORTEST_BYTES = 6  # in random bytes a shorter one is found by chance: 1 in 10**6 for 256 MiB at 6
NAME_OF_OURS = "a name of the deployment"
WINDOW = 4  # token ids in a row that are looked for


@dataclass(frozen=True, slots=True, repr=False)
class Needle:
    """One spelling of something. `what` and `spelling` say in a report which; never the text."""

    what: str
    spelling: str
    content: bytes


def spellings(what: str, content: bytes) -> list[Needle]:
    """As it is, in UTF-16, in hex, and in base64 at each of the three offsets that it can have."""
    found = [
        Needle(what, "plain", content),
        Needle(what, "hex", content.hex().encode()),
        Needle(what, "HEX", content.hex().upper().encode()),
    ]
    if content.isascii():
        found.append(Needle(what, "UTF-16", content.decode().encode("utf-16-le")))
    for offset in range(3):
        whole = base64.b64encode(bytes(offset) + content)
        # Characters that hold bits of what stands around it are left out.
        first = (8 * offset + 5) // 6
        last = (offset + len(content)) * 8 // 6
        found.append(Needle(what, f"base64+{offset}", whole[first:last]))
    found += [
        Needle(what, one.spelling.replace("base64", "base64url"), url)
        for one in found
        if (url := one.content.translate(bytes.maketrans(b"+/", b"-_"))) != one.content
        and one.spelling.startswith("base64")
    ]
    return [one for one in found if len(one.content) >= SHORTEST_BYTES]


def of_words(what: str, words: Iterable[str]) -> list[Needle]:
    return [needle for word in words for needle in spellings(what, word.encode())]


def of_token_ids(what: str, token_ids: Sequence[int]) -> list[Needle]:
    """A few ids in a row, from the start and from the middle, as binary and as written numbers."""
    found = []
    for start in (0, len(token_ids) // 2):
        ids = token_ids[start : start + WINDOW]
        binary = {"<I": "32-bit little", ">I": "32-bit big", "<Q": "64-bit little"}
        short = {"<H": "16-bit little", ">H": "16-bit big"} if max(ids) < 1 << 16 else {}
        for form, spelling in (binary | short).items():
            raw = b"".join(struct.pack(form, one) for one in ids)
            found.append(Needle(what, spelling, raw))
        for head, spelling in ((b"\xcd", "MessagePack"), (b"\x19", "CBOR")):
            if min(ids) > 255 and short:
                raw = b"".join(head + struct.pack(">H", one) for one in ids)
                found.append(Needle(what, spelling, raw))
        found += [
            Needle(what, "written", gap.join(map(str, ids)).encode()) for gap in (",", ", ", " ")
        ]
    return found


def search(content: bytes, needles: Iterable[Needle]) -> list[Needle]:
    """Those that are in there. Cost: one pass for each needle, about 2 GB/s."""
    return [needle for needle in needles if needle.content in content]


@dataclass(frozen=True, slots=True, repr=False)
class Words:
    """Names that must not stand alone in a text, in any case of letters; of 3 letters or more."""

    names: tuple[str, ...]

    @property
    def telling(self) -> Words:
        """Without those that may be words of the language (ops, sales), as free text has them."""
        return Words(tuple(name for name in self.names if not name.isalpha() or len(name) >= 12))

    def within(self, text: str) -> list[int]:
        """The places in `names` of those that are in there as words of their own."""
        lower = text.lower()
        return [
            place
            for place, name in enumerate(self.names)
            if len(name) >= 3  # cheap first: most are nowhere
            and name.lower() in lower
            and re.search(rf"(?<![0-9a-z]){re.escape(name.lower())}(?![0-9a-z])", lower)
        ]
