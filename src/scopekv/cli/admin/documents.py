"""`scopekv admin document`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from scopekv.cli.admin.command import command, page_options
from scopekv.errors import Misuse
from scopekv.gateway.administration.gate import LOCAL_OPERATOR

_FILE = click.argument("file", metavar="FILE", type=click.Path(path_type=Path, allow_dash=True))
_REF = click.argument("document", metavar="DOCUMENT")
_AUDIENCE = click.option(
    "--audience",
    required=True,
    metavar="AUDIENCE",
    help="public, org:ORG, group:ORG/GROUP or user:ORG/NAME.",
)


@click.group()
def document() -> None:
    """Published documents: texts whose cache a whole audience shares.

    DOCUMENT is an id (doc_...), a name, or ORG/NAME.
    """


@command(
    document,
    "publish",
    _FILE,
    _AUDIENCE,
    click.option("--name", required=True, help="Its name, unique within its owner."),
    click.option("--org", help="The owner. [default: the audience's organisation]"),
    example="document publish handbook.md --audience org:acme --name handbook",
)
def _publish(service: Any, file: Path, audience: str, name: str, org: str | None) -> Any:
    """Publish a text file, exactly as it is, for an audience. `-` reads standard input."""
    text = _read(file)
    return service.documents.publish(
        LOCAL_OPERATOR, name=name, audience=audience, text=text, org=org
    )


@command(
    document,
    "list",
    click.option("--withdrawn", is_flag=True, help="Also those that were withdrawn."),
    page_options,
    example="document list",
)
def _list(service: Any, withdrawn: bool, after: str, limit: int) -> Any:
    """List the documents."""
    return service.documents.list(LOCAL_OPERATOR, withdrawn=withdrawn, after=after, limit=limit)


@command(document, "show", _REF, example="document show handbook")
def _show(service: Any, document: str) -> Any:
    """Show a document with its revisions' digests, without its text."""
    return service.documents.show(LOCAL_OPERATOR, document)


@command(document, "text", _REF, example="document text handbook > handbook.md")
def _text(service: Any, document: str) -> Any:
    """Print a document's text, exactly. The audit log notes it."""
    return service.documents.text(LOCAL_OPERATOR, document)


@command(document, "revise", _REF, _FILE, example="document revise handbook handbook.md")
def _revise(service: Any, document: str, file: Path) -> Any:
    """Publish a new revision. What was cached of the old one is never read again."""
    return service.documents.revise(LOCAL_OPERATOR, document, _read(file))


@command(
    document, "audience", _REF, _AUDIENCE, example="document audience handbook --audience public"
)
def _set_audience(service: Any, document: str, audience: str) -> Any:
    """Change who may read a document. What was cached of it is never read again."""
    return service.documents.set_audience(LOCAL_OPERATOR, document, audience)


@command(document, "withdraw", _REF, example="document withdraw handbook")
def _withdraw(service: Any, document: str) -> Any:
    """Withdraw a document for good. Its text is dropped, its cache never read again."""
    return service.documents.withdraw(LOCAL_OPERATOR, document)


def _read(file: Path) -> str:
    """The file's text, exactly: no newline is translated, no byte-order mark is dropped."""
    try:
        data = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
        return data.decode("utf-8")
    except OSError as error:
        raise Misuse(f"file {str(file)!r} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise Misuse(
            f"file {str(file)!r} is not UTF-8 text (byte {error.start}); convert it first"
        ) from error
