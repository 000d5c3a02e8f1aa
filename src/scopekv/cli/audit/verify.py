"""`scopekv audit verify`: whether a report is as it was signed, and by whom."""

from __future__ import annotations

from pathlib import Path

import click

from scopekv.audit.report import (
    Verification,
    fingerprint,
    public_pem,
    read_fingerprint,
    read_public_key,
    report_signer,
    verify_report,
)
from scopekv.cli.options import data_dir_option, default_data_dir

_file = click.Path(exists=True, dir_okay=False, path_type=Path)
_folder = click.Path(exists=True, file_okay=False, path_type=Path)


@click.command()
@click.argument("folder", type=_folder, required=False)
@click.option("--public-key", type=_file, help="The signer's key: PEM, or 64 hex digits.")
@click.option("--fingerprint", "wanted", metavar="HEX", help="SHA-256 of the signer's key.")
@click.option("--show-key", is_flag=True, help="Print the key that signs reports here, and end.")
@data_dir_option
@click.pass_context
def verify(
    ctx: click.Context,
    folder: Path | None,
    public_key: Path | None,
    wanted: str | None,
    show_key: bool,
    data_dir: Path | None,
) -> None:
    """Check a report's signature and that no file was changed, added or taken away.

    \b
    scopekv audit verify report --fingerprint HEX   as the operator published it
    scopekv audit verify --show-key                 what an operator publishes

    Without a key or a fingerprint this shows only that the files belong together: whoever changed
    them all could have signed them anew.

    Exit codes: 0 as signed; 1 changed, or signed by another key; 2 no report that can be read;
    64 wrong use.
    """
    if show_key:
        key = report_signer((data_dir or default_data_dir()).expanduser().absolute()).public_key
        click.echo(f"{public_pem(key)}fingerprint: {fingerprint(key)}")
        return
    if folder is None:
        raise click.UsageError("give the folder of a report, or --show-key")
    if public_key is not None and wanted is not None:
        raise click.UsageError("give --public-key or --fingerprint, not both")
    expected = None
    if public_key is not None:
        expected = fingerprint(read_public_key(public_key))
    elif wanted is not None:
        expected = read_fingerprint(wanted)
    found = verify_report(folder, expected)
    for line in _lines(found):
        click.echo(line)
    ctx.exit(found.exit_code)


def _lines(found: Verification) -> list[str]:
    """What is wrong, or what the signature shows; names from the report stay one printable line."""
    lines = [f"WRONG: {problem}" for problem in found.problems]
    manifest = found.manifest
    if manifest is None:
        return [*lines, "This is no report that can be verified."]
    if lines:
        return [*lines, "Do not rely on this report."]
    cut = "" if manifest.complete else " (cut short)"
    lines = [
        f"Unchanged since it was signed: {len(manifest.files)} files and the manifest.",
        f"Verdict: {manifest.verdict.value}{cut}.",
        f"Made from {manifest.started_at!a} to {manifest.ended_at!a}.",
        f"Signed by the key with the fingerprint {manifest.signed_by.fingerprint}",
    ]
    if found.pinned:
        return [*lines, "That is the key you gave."]
    return [
        *lines,
        "No key was given to compare, so this shows only that the files belong together.",
        "Get the fingerprint from the operator in another way, and give it with --fingerprint.",
    ]
