"""Text to token ids, once: what a scope has sent before is not tokenised again.

A prompt is cut at added tokens (`<|im_end|>` ...), which the tokenizer itself cuts at before
anything else. Each chunk between them is looked up in a memo of its scope. A chunk that starts
with published documents starts from the document's tokens, cut where the pre-tokenizer must cut
whatever follows, so only the text after it is read:

    chunk     user\n The handbook ... end of it.\n\nHow many days
              |--- memo of the document ---|cut|--- tokenised --->

That is exact for pre-tokenizers that scan from left to right and look ahead no further than a run
of blanks and a few characters (`_LOCAL`); for others the whole text is tokenised each time.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import OrderedDict, deque
from collections.abc import Hashable, Sequence
from itertools import accumulate, chain, pairwise

from tokenizers import Encoding, Tokenizer

from scopekv.core.values import light_value
from scopekv.gateway.tokens import Stretch, Tokens, added_in, common, ends_in, splits_locally
from scopekv.gateway.words import make_words

MEMO_BYTES_MAX = 256 << 20
OWNERS_MAX = 256
_LOOK_AHEAD_CHARS = 4
_WINDOW_CHARS = 400
_PROBES = ("", " a", "\n\nb", "1", ".", "é", "  x", "'s")
_NOTHING = Tokens(b"", b"")


@light_value()
class _Chunk:
    tokens: Tokens
    ends: tuple[int, ...]  # token ends of the stretches that end in it
    bytes: int  # held with its key, roughly


@light_value()
class _Anchor:
    cut: int  # characters of the prefix whose tokens no later text can change
    tokens: Tokens
    ends: tuple[int, ...]
    bytes: int


class PromptTokenizer:
    """Tokenises prompts of one model. Bounded memory; not thread-safe (one event loop)."""

    def __init__(self, tokenizer: Tokenizer, memo_bytes_max: int = MEMO_BYTES_MAX) -> None:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._tokenizer = tokenizer
        decoder = tokenizer.get_added_tokens_decoder()
        self._added = {token.content: Tokens.of([i]) for i, token in decoder.items()}
        longest_first = sorted(self._added, key=lambda content: (-len(content), content))
        self._pattern = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")
        firsts = {content[:1] for content in self._added}
        self._first = firsts.pop() if len(firsts) == 1 else ""
        self._splits = splits_locally(tokenizer)
        self._words = make_words(tokenizer) if self._splits else None
        self._adds_special = tokenizer.num_special_tokens_to_add(False) > 0
        self._memo: OrderedDict[Hashable, _Chunk | _Anchor] = OrderedDict()
        self._seen: OrderedDict[Hashable, dict[str, list[int]]] = OrderedDict()
        self._memo_bytes, self._memo_bytes_max = 0, memo_bytes_max

    def tokenize(
        self, text: str, stretches: Sequence[Stretch], *, special: bool = False
    ) -> tuple[Tokens, tuple[int, ...]]:
        """Return the tokens of `text` and the token end of each stretch.

        A token that straddles a stretch's end is outside it. `special`: let the tokenizer add its
        own tokens (BOS), as the engine does for plain completions.
        """
        if not self._splits or (special and self._adds_special):
            encoding = self._tokenizer.encode(text, add_special_tokens=special)
            given = [stretch.end for stretch in stretches]
            ends = self._capped_whole(text, encoding, stretches, ends_in(encoding, given))
            return Tokens.of(encoding.ids), ends
        pieces: list[Tokens] = []
        token_ends: list[int] = []
        position, count, todo = 0, 0, deque(stretches)
        for start, stop, token in self._cuts(text):
            inside = _pop_until(todo, start)
            owner = (todo[0] if todo else stretches[-1]).owner if stretches else None
            chunk = self._chunk(text[position:start], position, inside, owner)
            token_ends += [count + end for end in chunk.ends]
            count += len(chunk.tokens)
            # A stretch that ends inside an added token ends before it.
            token_ends += [count] * len(_pop_until(todo, stop - 1))
            pieces += (chunk.tokens, token)
            count += len(token)
            position = stop
        return Tokens.join(pieces), tuple(token_ends)

    def _capped_whole(
        self, text: str, encoding: Encoding, stretches: Sequence[Stretch], counts: tuple[int, ...]
    ) -> tuple[int, ...]:
        """`_capped` for a tokenizer that reads texts whole."""
        capped = list(counts)
        for index, stretch in enumerate(stretches):
            if stretch.fixed:
                head = text[: stretch.end]
                with_added = self._tokenizer.encode(head, add_special_tokens=True).ids
                equal = max(common(ids, encoding.ids) for ids in (with_added, self._ids(head)))
                capped[index] = min(counts[index], equal)
        return tuple(capped)

    def _cuts(self, text: str) -> list[tuple[int, int, Tokens]]:
        """(start, stop, token) of each added token, and the end of the text."""
        cuts = [
            (found.start(), found.end(), self._added[found[0]])
            for found in added_in(self._pattern, self._first, text)
        ]
        return [*cuts, (len(text), len(text), _NOTHING)]

    def _chunk(self, chunk: str, offset: int, inside: Sequence[Stretch], owner: Hashable) -> _Chunk:
        """Tokens of one chunk. `inside`: stretches that end in it; `owner`: whose the rest is."""
        if not chunk:
            return _Chunk(_NOTHING, (0,) * len(inside), 0)
        ends = tuple([stretch.end - offset for stretch in inside])
        whole = bool(ends) and ends[-1] == len(chunk)
        key = ("chunk", inside[-1].owner if whole else owner, chunk, ends)
        known = self._recall(key)
        if isinstance(known, _Chunk):
            return known
        made = self._encode_chunk(chunk, inside, ends, key[1])
        self._remember(key, made)
        return made

    def _encode_chunk(
        self, chunk: str, inside: Sequence[Stretch], ends: tuple[int, ...], owner: Hashable
    ) -> _Chunk:
        anchor = _Anchor(0, _NOTHING, (), 0)
        fixed = 0
        for stretch in inside:
            if not stretch.fixed:
                break
            further = self._anchor(chunk, inside[: fixed + 1], ends[: fixed + 1], anchor)
            if further is None:
                break
            anchor, fixed = further, fixed + 1
        rest = [max(0, end - anchor.cut) for end in ends[len(anchor.ends) :]]
        tail, counted = self._encode(chunk[anchor.cut :], rest, self._seen_by(owner))
        counted = self._capped(chunk[anchor.cut :], tail, inside[len(anchor.ends) :], rest, counted)
        before = len(anchor.tokens)
        tokens = Tokens.join([anchor.tokens, Tokens.of(tail)])
        ends = (*anchor.ends, *[before + end for end in counted])
        return _Chunk(tokens, ends, _cost(tokens, chunk))

    def _anchor(
        self,
        chunk: str,
        inside: Sequence[Stretch],
        ends: Sequence[int],
        before: _Anchor,
    ) -> _Anchor | None:
        """The tokens of documents at the chunk's start that no text after them can change."""
        prefix = chunk[: ends[-1]]
        key = ("anchor", tuple(stretch.owner for stretch in inside), prefix, tuple(ends))
        known = self._recall(key)
        if isinstance(known, _Anchor):
            return known if known.cut else None
        made = self._make_anchor(prefix, inside, ends, before)
        self._remember(key, made or _Anchor(0, _NOTHING, (), _cost(_NOTHING, prefix)))
        return made

    def _make_anchor(
        self, prefix: str, inside: Sequence[Stretch], ends: Sequence[int], before: _Anchor
    ) -> _Anchor | None:
        cut = self._last_safe_cut(prefix, before.cut)
        if cut is None or (len(ends) > 1 and cut <= ends[-2]):
            return None
        between = [end - before.cut for end in ends[len(before.ends) : -1]]
        region, inner = self._encode(prefix[before.cut : cut], between, {})
        done = len(before.ends)
        inner = self._capped(prefix[before.cut : cut], region, inside[done:], between, inner)
        if not self._holds(prefix, before.cut, cut):
            return None
        count = len(before.tokens)
        tokens = Tokens.join([before.tokens, Tokens.of(region)])
        ends_before = (*before.ends, *(count + end for end in inner))
        return _Anchor(cut, tokens, ends_before, _cost(tokens, prefix))

    def _last_safe_cut(self, prefix: str, start: int) -> int | None:
        """The last pre-token boundary whose left side cannot change, whatever follows `prefix`.

        From a boundary on, scanning needs no memory of its left. What a match before it could look
        ahead at (blanks, then a few characters) must end inside the prefix.
        """
        limit = len(prefix.rstrip()) - _LOOK_AHEAD_CHARS
        pieces = self._tokenizer.pre_tokenizer.pre_tokenize_str(prefix[start:])
        for _, (begin, _) in reversed(pieces):
            if 0 < begin <= limit - start:
                return start + int(begin)
        return None

    def _holds(self, prefix: str, start: int, cut: int) -> bool:
        """Try the cut on a few texts that might follow, rather than trust the reasoning alone.

        A window before the cut is enough: tokens never reach over a pre-token's border.
        """
        window = self._window(prefix, start, cut)
        region = self._ids(prefix[window:cut])
        return all(
            self._ids(prefix[window:] + probe) == region + self._ids(prefix[cut:] + probe)
            for probe in _PROBES
        )

    def _window(self, prefix: str, start: int, cut: int) -> int:
        """A pre-token border some hundred characters before `cut`, or `start`."""
        rough = cut - _WINDOW_CHARS
        if rough <= start:
            return start
        pieces = self._tokenizer.pre_tokenizer.pre_tokenize_str(prefix[rough:cut])
        # The first pieces may be halves; from the third on a border is one of the whole text's.
        return rough + int(pieces[2][1][0]) if len(pieces) > 2 else start

    def _ids(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def _capped(
        self,
        text: str,
        ids: list[int],
        stretches: Sequence[Stretch],
        ends: Sequence[int],
        counts: tuple[int, ...],
    ) -> tuple[int, ...]:
        """Let a document end where its tokens are its own, whatever follows it.

        What follows can change a document's last tokens; those would tell its readers of it.
        """
        if not any(stretch.fixed for stretch in stretches):
            return counts
        capped = []
        for stretch, end, count in zip(stretches, ends, counts, strict=False):
            if stretch.fixed and count:
                alone, _ = self._encode(text[:end], (), {})
                capped.append(min(count, common(alone, ids)))
            else:
                capped.append(count)
        return tuple(capped)

    def _seen_by(self, owner: Hashable) -> dict[str, list[int]]:
        """The words kept for an owner; the owner that was away longest makes room."""
        seen = self._seen.setdefault(owner, {})
        self._seen.move_to_end(owner)
        if len(self._seen) > OWNERS_MAX:
            self._seen.popitem(last=False)
        return seen

    def _encode(
        self, text: str, ends: Sequence[int], seen: dict[str, list[int]]
    ) -> tuple[list[int], tuple[int, ...]]:
        """Token ids of a text without added tokens, and the token ends of `ends` (rising)."""
        words = self._words.split(text) if self._words is not None else None
        if self._words is not None and words is not None:
            if not ends or (len(ends) == 1 and ends[0] == len(text)):
                ids = self._words.ids(words, seen)
                return ids, (len(ids),) * len(ends)
            starts = [0, *accumulate(map(len, words))]
            # An end inside a word is the tokenizer's to judge; at its borders nothing straddles.
            cuts = [bisect_left(starts, end) for end in ends]
            if all(starts[cut] == end for cut, end in zip(cuts, ends, strict=True)):
                runs = pairwise((0, *cuts, len(words)))
                pieces = [self._words.ids(words[a:b], seen) for a, b in runs]
                counts = accumulate(map(len, pieces[:-1]))
                return list(chain.from_iterable(pieces)), tuple(counts)
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        return encoding.ids, ends_in(encoding, ends)

    def _recall(self, key: Hashable) -> _Chunk | _Anchor | None:
        known = self._memo.get(key)
        if known is not None:
            self._memo.move_to_end(key)
        return known

    def _remember(self, key: Hashable, made: _Chunk | _Anchor) -> None:
        self._memo[key] = made
        self._memo_bytes += made.bytes
        while self._memo_bytes > self._memo_bytes_max and self._memo:
            self._memo_bytes -= self._memo.popitem(last=False)[1].bytes


def _pop_until(todo: deque[Stretch], end: int) -> list[Stretch]:
    popped = []
    while todo and todo[0].end <= end:
        popped.append(todo.popleft())
    return popped


def _cost(tokens: Tokens, text: str) -> int:
    return 400 + len(text) + len(tokens.packed) + len(tokens.json)
