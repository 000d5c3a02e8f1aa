"""ScopeKV: permission-scoped KV cache sharing for vLLM."""

__version__ = "0.1.0"
