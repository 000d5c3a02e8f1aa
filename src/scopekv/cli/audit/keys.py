"""Options that take a key: by the environment, from a file, or as it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

Command = Callable[..., Any]


class KeyText(click.ParamType[str]):
    """A text, or `@FILE` for the content of a file, which `ps` does not show."""

    name = "KEY|@FILE"

    def convert(self, value: Any, param: Any, ctx: Any) -> str:
        text = str(value)
        if text.startswith("@"):
            try:
                text = Path(text[1:]).read_text("utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                self.fail(f"cannot read {text[1:]}: {type(error).__name__}", param, ctx)
        if not text or not text.isascii() or not text.isprintable():
            self.fail("a key is one line of printable ASCII", param, ctx)
        return text


def key_option(name: str, words: str, **settings: Any) -> Callable[[Command], Command]:
    """Add `--<name>`, which the environment gives as SCOPEKV_AUDIT_<NAME>."""
    variable = f"SCOPEKV_AUDIT_{name.upper().replace('-', '_')}"
    return click.option(
        f"--{name}", type=KeyText(), envvar=variable, show_envvar=True, help=words, **settings
    )


def or_empty(_context: click.Context, _param: click.Parameter, value: str | None) -> str:
    """Option callback: empty where the option was not given."""
    return value or ""
