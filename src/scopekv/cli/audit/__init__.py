"""`scopekv audit`: attack a deployment, and say what was found."""

from __future__ import annotations

import sys
import traceback
from typing import Any, NoReturn

import click

from scopekv.cli.verbs import LazyGroup
from scopekv.errors import ScopeKVError

_HERE = "scopekv.cli.audit"
BROKEN, NOTHING_PROVED, WRONG_USE = 1, 2, 64


class AuditGroup(LazyGroup):
    """Sees to it that nothing but a broken check ends with exit code 1, which CI reads."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            error.show()
            sys.exit(WRONG_USE)
        except click.exceptions.Exit:
            raise
        except click.ClickException as error:
            error.show()
            sys.exit(error.exit_code if error.exit_code != BROKEN else NOTHING_PROVED)
        except ScopeKVError as error:
            _end(f"Error: {error}")
        except (KeyboardInterrupt, click.Abort):
            _end("Interrupted.")
        except Exception:  # noqa: BLE001 - Python's own exit code for these is 1
            _end(traceback.format_exc())


def _end(message: str) -> NoReturn:
    click.echo(message, err=True)
    sys.exit(NOTHING_PROVED)


@click.group(
    cls=AuditGroup,
    verbs={
        "run": f"{_HERE}.run:run",
        "isolation": f"{_HERE}.isolation:isolation",
        "timing": f"{_HERE}.timing:timing",
        "store": f"{_HERE}.store:store",
        "verify": f"{_HERE}.verify:verify",
    },
)
def audit() -> None:
    """Attack a deployment and report what was tried, what was found and what was not tested.

    \b
    scopekv audit run --out report     all audits, one signed report
    scopekv audit verify report        that nobody changed it since

    Exit codes: 0 isolation held; 1 broken; 2 nothing proved (a control failed, or it was cut
    short); 64 wrong use.
    """
