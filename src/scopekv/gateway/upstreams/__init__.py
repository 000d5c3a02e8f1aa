"""Providers' own APIs (OpenAI, Anthropic) as backends beside the engines.

Their caches know one boundary, the workspace or organisation of a credential. Everything narrower
is ours to keep apart, in the text itself: docs/upstreams.md.
"""
