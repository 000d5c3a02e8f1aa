"""Administration: one service behind `scopekv admin` and `/admin/v1`."""

from scopekv.gateway.administration.gate import LOCAL_OPERATOR
from scopekv.gateway.administration.service import Administration

__all__ = ["LOCAL_OPERATOR", "Administration"]
