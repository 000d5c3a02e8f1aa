"""vLLM's tiered offload under ScopeKV's rules: host memory, then sealed tiers."""
