"""`scopekv simulate`: replay a recorded workload on a fleet that need not exist."""

from scopekv.cli.simulate.command import simulate

__all__ = ["simulate"]
