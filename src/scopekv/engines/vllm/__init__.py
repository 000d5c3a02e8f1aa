"""The plugin inside vLLM. The only package that imports vllm or torch.

Entry points: `scopekv` in `vllm.general_plugins` (`plugin.register`) and in
`vllm.endpoint_plugins` (`endpoint.ScopeKVEndpoint`). Neither changes vLLM's files.
"""
