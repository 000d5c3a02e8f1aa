"""A group whose verbs are imported when they are asked for."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click


class LazyGroup(click.Group):
    """So that help does not wait for a database driver, nor for numpy.

    `verbs`: name -> `package.module:command`, in the order of the help.
    """

    def __init__(self, *args: Any, verbs: Mapping[str, str], **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._verbs = dict(verbs)

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(self._verbs)

    def get_command(self, _ctx: click.Context, name: str) -> click.Command | None:
        if name not in self._verbs:
            return None
        module, _, attribute = self._verbs[name].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command
