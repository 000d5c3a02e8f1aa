"""Printing an answer: JSON for programs, tables for people."""

from __future__ import annotations

import sys
from datetime import UTC, datetime

import click
import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from scopekv.gateway.administration.views import (
    AccountView,
    AuditCheck,
    AuditView,
    Deleted,
    DocumentDetail,
    DocumentView,
    GroupView,
    NewKeyView,
    Page,
    ReceiptView,
    RevocationView,
    TextView,
)

_PIPE_COLUMNS = 240  # a pipe has no width, and must not lose half a name
_LIST_COLUMNS: dict[type[msgspec.Struct], tuple[str, ...]] = {
    AccountView: ("org", "name", "uid", "roles", "groups", "blocked", "created_at"),
    GroupView: ("name", "uid", "members"),
    ReceiptView: ("id", "at", "subject", "state", "finished_at"),
    DocumentView: ("id", "org", "name", "audience", "revision", "size_bytes", "changed_at"),
    AuditView: ("seq", "at_ms", "actor", "action", "resource", "outcome", "reason"),
}


class NotDone(click.ClickException):
    """Committed and under way, but not success."""

    exit_code = 3


def print_answer(answer: msgspec.Struct, as_json: bool) -> None:
    """Print one struct of `gateway.administration.views` to stdout.

    Raises `ClickException` after printing where the answer is bad news: a broken audit log, a
    revocation that is not done (exit code 3).
    """
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(answer), indent=2).decode())
    else:
        _print_human(answer)
    if isinstance(answer, AuditCheck) and not answer.intact:
        raise click.ClickException(
            f"{answer.detail}; compare the registry with a backup before you trust the log"
        )
    if isinstance(answer, RevocationView) and answer.receipt.state != "done":
        raise NotDone(
            f"revoked, not yet confirmed everywhere: {answer.receipt.state}. The gateway goes on "
            f"by itself; see `scopekv admin receipts show {answer.receipt.id}`"
        )


def _print_human(answer: msgspec.Struct) -> None:
    if isinstance(answer, TextView):
        sys.stdout.write(answer.text)
    elif isinstance(answer, Page):
        _print_list(answer)
    elif isinstance(answer, NewKeyView):
        _print_fields(answer.key)
        click.echo(f"\n{answer.secret}\n")
        click.echo("This is the only time the key is shown: copy it now.", err=True)
    elif isinstance(answer, DocumentDetail):
        _print_fields(answer.document, epoch=answer.epoch)
        _print_table("revisions", list(answer.revisions))
    elif isinstance(answer, Deleted):
        click.echo(f"deleted {answer.deleted}")
        if answer.receipt:
            click.echo(f"what was kept of it is being purged: {answer.receipt}", err=True)
    elif isinstance(answer, RevocationView):
        _print_receipt(answer.receipt, revoked=answer.effect, keys_destroyed=answer.keys_destroyed)
    elif isinstance(answer, ReceiptView):
        _print_receipt(answer)
    else:
        _print_fields(answer)


def _print_receipt(receipt: ReceiptView, **more: object) -> None:
    hidden = ("lines", "advice")
    _print_fields(receipt, hidden, **more)
    if receipt.lines:
        _print_table("", list(receipt.lines))
    for text in receipt.advice:
        click.echo(text)


def _print_list(page: Page) -> None:
    rows = [row for row in page.data if isinstance(row, msgspec.Struct)]
    if not rows:
        click.echo("none")
        return
    _print_table("", rows)
    if page.has_more:
        click.echo(f"There are more: add --after {page.next}", err=True)


def _print_table(title: str, rows: list[msgspec.Struct]) -> None:
    names = _LIST_COLUMNS.get(type(rows[0]), rows[0].__struct_fields__) if rows else ()
    table = Table(title=title or None, title_justify="left")
    for name in names:
        table.add_column(_heading(name), overflow="fold")
    for row in rows:
        table.add_row(*(_cell(name, getattr(row, name)) for name in names))
    _console().print(table)


def _print_fields(item: msgspec.Struct, hidden: tuple[str, ...] = (), **more: object) -> None:
    table = Table(show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    values = {name: getattr(item, name) for name in item.__struct_fields__ if name not in hidden}
    values |= more
    for name, value in values.items():
        table.add_row(_heading(name), _cell(name, value))
    _console().print(table)


def _heading(name: str) -> str:
    return name.removesuffix("_ms").replace("_", " ")


def _cell(name: str, value: object) -> Text:
    """Plain text always: what people typed must not act as markup or move the cursor."""
    if value is None or value == "" or value == []:
        return Text("-")
    if isinstance(value, bool):
        return Text("yes" if value else "no")
    if isinstance(value, list):
        return Text(", ".join(str(item) for item in value))
    if isinstance(value, dict):
        return Text(", ".join(f"{key}: {count}" for key, count in value.items()) or "-")
    if isinstance(value, int) and (name == "at" or name.endswith("_at")):
        return Text(_time(value))
    if isinstance(value, int) and name == "at_ms":
        return Text(_time(value / 1000))
    return Text("".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in str(value)))


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def _console() -> Console:
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_PIPE_COLUMNS)
