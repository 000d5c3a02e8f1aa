# vLLM's own image with the plugin in it. From the clone's root:
#   docker build -f deploy/containers/engine.Dockerfile -t scopekv-engine .
ARG VLLM=vllm/vllm-openai:v0.32.0
# hadolint ignore=DL3006
FROM ${VLLM}
LABEL org.opencontainers.image.title="vLLM with ScopeKV" \
      org.opencontainers.image.licenses="Apache-2.0"
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
WORKDIR /build
COPY pyproject.toml README.md LICENSE ./
COPY src src
# vLLM's own packages stay as they are: what it was built and tested with.
RUN python3 -m pip list --format=freeze \
    | grep -iE '^(torch|transformers|numpy|tokenizers|msgspec|pyzmq|prometheus-client)==' > held.txt \
 && python3 -m pip install --no-cache-dir --constraint held.txt '.[valkey,s3]' \
 && python3 -m pip check \
 && groupadd --gid 10001 scopekv \
 && useradd --uid 10001 --gid 10001 --home-dir /var/lib/scopekv scopekv \
 && install -d -o 10001 -g 10001 -m 0700 /var/lib/scopekv /var/lib/scopekv/models /run/scopekv
COPY --chmod=0755 deploy/containers/engine-start.sh /usr/local/bin/engine-start
ENV HOME=/var/lib/scopekv \
    HF_HOME=/var/lib/scopekv/models \
    VLLM_PLUGINS=scopekv \
    SCOPEKV_TICKET_KEYS=/run/scopekv/ticket-keys.json
USER 10001:10001
WORKDIR /var/lib/scopekv
EXPOSE 8000
# The first start reads the model from the network: give it time.
HEALTHCHECK --interval=10s --timeout=5s --start-period=900s \
  CMD ["python3", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/health', timeout=4)"]
ENTRYPOINT ["/usr/local/bin/engine-start"]
