"""What the documentation tells people to type exists: verbs, options, settings, targets, paths."""

from __future__ import annotations

import itertools
import re
import shlex
import tomllib
from collections.abc import Iterator

import click
import msgspec
import pytest

from scopekv.cli.main import main
from scopekv.gateway.settings_file import SettingsFile
from tests.unit.markdown import ROOT, blocks, pages, spans

# From the program's name on, up to what ends a command in a shell, a comment, or two spaces.
COMMAND = re.compile(r"(?:^|[\s/(`])scopekv (?=[a-z][a-z-]*(?:\s|$))((?:(?!&&|[)`>]| #|  ).)+)")
# The changelog speaks of what was; the page of commands is the help itself (test_reference.py).
PAGES = [page for page in pages() if page.name not in ("CHANGELOG.md", "commands.md")]


def commands(text: str) -> Iterator[str]:
    """Every call of `scopekv` on a page, without the program's name."""
    code = [block.replace("\\\n", " ") for _, block in blocks(text)]
    for line in itertools.chain(*(block.splitlines() for block in code), spans(text)):
        yield from (found.strip() for found in COMMAND.findall(re.sub(r" {2,}", "  ", line)))


def spelled_out(call: str) -> Iterator[list[str]]:
    """The calls that a line with `a|b`, `a x | b y` and `[--maybe]` stands for."""
    first, *others = call.split(" | ")
    words = shlex.split(re.sub(r"\s[\[(]|[\])]", " ", f" {first}"))
    yield from map(list, itertools.product(*(word.split("|") for word in words)))
    path = _path(words)
    for other in others:
        yield [*path, *shlex.split(other)]


def _path(words: list[str]) -> list[str]:
    """The groups at the head of a call: what an alternative after ` | ` follows."""
    found: click.Command = main
    for count, word in enumerate(words):
        if not isinstance(found, click.Group):
            return words[: count - 1]
        found = found.get_command(click.Context(found), word) or main
    return words[:-1]


def misfit(words: list[str]) -> str:
    """Why these words are no call of ours; empty if they are."""
    command: click.Command = main
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        verb = command.get_command(click.Context(command), words[0])
        if verb is None:
            return f"{command.name} has no {words[0]}"
        command, words = verb, words[1:]
    # Resilient: of a command that is another one where a flag is given, it says which.
    meant = command.make_context(command.name, list(words), resilient_parsing=True).command
    if meant is not command:
        command, words = meant, [word for word in words if word != "--fuzz"]
    try:
        # The parser alone: values are placeholders, names are not.
        _, rest, _ = command.make_parser(click.Context(command)).parse_args(list(words))
    except click.BadOptionUsage as error:
        named_alone = error.option_name == words[-1]  # in a sentence about the option
        return "" if named_alone else f"{command.name}: {error.format_message()}"
    except click.UsageError as error:
        return f"{command.name}: {error.format_message()}"
    return f"{command.name}: too much: {rest}" if rest else ""


def test_every_command_exists_with_its_options() -> None:
    seen, wrong = 0, []
    for page in PAGES:
        for call in commands(page.read_text("utf-8")):
            for words in spelled_out(call):
                seen += 1
                if why := misfit(words):
                    wrong.append(f"{page.relative_to(ROOT)}: scopekv {' '.join(words)}: {why}")
    assert wrong == []
    assert seen > 100


@pytest.mark.parametrize(
    "line",
    [
        *("scopekv upp", "scopekv admin revoke usr a/b", "scopekv up --instanses 2"),
        *("scopekv admin receipts list | shw UID", "scopekv explain A B", "x && scopekv admin no"),
    ],
)
def test_a_command_that_does_not_exist_is_found(line: str) -> None:
    calls = [words for call in commands(f"```\n{line}\n```\n") for words in spelled_out(call)]
    assert any(map(misfit, calls))


def test_every_file_of_settings_is_one() -> None:
    """Its keys exist with values of their type; what a fragment leaves out is not missed."""
    shown = [
        block for page in PAGES for name, block in blocks(page.read_text("utf-8")) if name == "toml"
    ]
    assert len(shown) > 3
    for block in shown:
        given = tomllib.loads(block)
        named = [{"name": "any", **one} for one in given.get("instances", [])]
        msgspec.convert({**given, "instances": named}, SettingsFile)


def test_every_target_of_make_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    for page in PAGES:
        text = page.read_text("utf-8")
        told = {target for one in spans(text) for target in re.findall(r"^make ([a-z]+)$", one)}
        for _, block in blocks(text):
            told.update(re.findall(r"^make ([a-z]+)", block, re.MULTILINE))
        assert told <= targets, page.name
