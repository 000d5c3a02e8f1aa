"""Explaining a miss to the caller who had it, from its own prompts alone (L10)."""

from __future__ import annotations

from scopekv.gateway.explaining.answer import shown
from scopekv.gateway.explaining.forgetting import Forgetter
from scopekv.gateway.explaining.pieces import read_prompt
from scopekv.gateway.explaining.recents import Recent, Recents
from scopekv.gateway.explaining.route import EXPLAIN, Explainer

__all__ = ["EXPLAIN", "Explainer", "Forgetter", "Recent", "Recents", "read_prompt", "shown"]
