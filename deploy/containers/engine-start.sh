#!/usr/bin/env bash
# Start vLLM with the plugin. Arguments go to `vllm serve`, the model first.
#   TIERS     as `scopekv tiers config --tier`, with blanks between: "host=64GiB valkey://HOST:6379,1TiB".
#             Empty: engine memory alone.
#   INSTANCE  this engine's name for its tiers (default: the host's name)
#   VLLM_API_KEY, SCOPEKV_TICKET_KEYS, SCOPEKV_BROKER_URL, SCOPEKV_BROKER_SECRET: docs/using.md
set -euo pipefail

if [[ $# -eq 0 || -z "${VLLM_API_KEY:-}" ]]; then
  echo "engine-start: name the model as the first argument, and set VLLM_API_KEY: without a key" \
    "whoever reaches this port goes past the gateway" >&2
  exit 64
fi
options=(--prefix-caching-hash-algo sha256_cbor --enable-prompt-tokens-details)
tiers=()
for tier in ${TIERS:-}; do tiers+=(--tier "$tier"); done
if [[ ${#tiers[@]} -gt 0 ]]; then
  config="$(scopekv tiers config --instance "${INSTANCE:-$(hostname)}" "${tiers[@]}")"
  options+=(--kv-transfer-config "$config")
fi
exec vllm serve "$@" "${options[@]}"
