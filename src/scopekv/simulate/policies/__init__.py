"""Eviction policies to compare ours with; the tiers use none of them."""

from scopekv.simulate.policies.arc import ArcPolicy
from scopekv.simulate.policies.fifo import FifoPolicy
from scopekv.simulate.policies.fitted import fitted_policy
from scopekv.simulate.policies.optimal import Future, OptimalPolicy, ToldWhetherPolicy
from scopekv.simulate.policies.s3fifo import S3FifoPolicy

__all__ = [
    "ArcPolicy",
    "FifoPolicy",
    "Future",
    "OptimalPolicy",
    "S3FifoPolicy",
    "ToldWhetherPolicy",
    "fitted_policy",
]
