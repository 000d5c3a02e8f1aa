"""`scopekv audit`: attack a deployment, and say what was found."""

from __future__ import annotations

import click

from scopekv.cli.verbs import LazyGroup

_HERE = "scopekv.cli.audit"


@click.group(
    cls=LazyGroup,
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
