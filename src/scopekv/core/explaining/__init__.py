"""Why a prompt was not read from the cache: causes, each with its place, its loss and its fix."""

from __future__ import annotations

from scopekv.core.explaining.causes import Cause, Certainty, MissCause
from scopekv.core.explaining.diagnosis import Diagnosis, diagnose
from scopekv.core.explaining.divergence import Divergence, Member, divergence
from scopekv.core.explaining.facts import Facts
from scopekv.core.explaining.prompts import Kind, Piece, ReadPrompt, cached_tokens

__all__ = [
    "Cause",
    "Certainty",
    "Diagnosis",
    "Divergence",
    "Facts",
    "Kind",
    "Member",
    "MissCause",
    "Piece",
    "ReadPrompt",
    "cached_tokens",
    "diagnose",
    "divergence",
]
