"""Eviction policies to compare ours with; the tiers use none of them."""

from scopekv.simulate.policies.arc import ArcPolicy
from scopekv.simulate.policies.fifo import FifoPolicy
from scopekv.simulate.policies.optimal import Future, OptimalPolicy
from scopekv.simulate.policies.s3fifo import S3FifoPolicy

__all__ = ["ArcPolicy", "FifoPolicy", "Future", "OptimalPolicy", "S3FifoPolicy"]
