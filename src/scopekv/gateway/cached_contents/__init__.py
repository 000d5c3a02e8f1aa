"""Explicit cache objects in the form of Gemini's `cachedContents`, on published documents."""

from __future__ import annotations

from scopekv.gateway.cached_contents.ending import Ender
from scopekv.gateway.cached_contents.http import CachedContents, takes

__all__ = ["CachedContents", "Ender", "takes"]
