"""Engines: the embedded one, and the plugin that runs inside vLLM."""
