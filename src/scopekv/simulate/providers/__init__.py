"""Simulated providers: OpenAI's and Anthropic's APIs with the caching rules that they document.

A cache of each workspace (Anthropic) or organisation (OpenAI), as of late 2026; a token is a word
or a sign. What is simulated worst for keeping apart: no request misses for having reached another
machine, so whatever could be shared is.
"""

from __future__ import annotations

from scopekv.simulate.providers.server import SimulatedProvider

__all__ = ["SimulatedProvider"]
