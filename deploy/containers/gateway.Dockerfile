# The gateway: no torch, no vLLM. From the clone's root:
#   docker build -f deploy/containers/gateway.Dockerfile -t scopekv-gateway .
# Pin the base by digest for your own releases: --build-arg PYTHON=python:3.12-slim-bookworm@sha256:...
ARG PYTHON=python:3.12-slim-bookworm

FROM ${PYTHON} AS build
WORKDIR /build
COPY requirements/gateway.txt requirements/
RUN python -m venv /opt/scopekv \
 && /opt/scopekv/bin/pip install --no-cache-dir --no-deps -r requirements/gateway.txt
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN /opt/scopekv/bin/pip install --no-cache-dir --no-deps .

FROM ${PYTHON}
LABEL org.opencontainers.image.title="ScopeKV gateway" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN groupadd --gid 10001 scopekv \
 && useradd --uid 10001 --gid 10001 --home-dir /var/lib/scopekv --shell /usr/sbin/nologin scopekv \
 && install -d -o 10001 -g 10001 -m 0700 /var/lib/scopekv /var/lib/scopekv-engines
COPY --from=build /opt/scopekv /opt/scopekv
ENV PATH=/opt/scopekv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    SCOPEKV_DATA_DIR=/var/lib/scopekv
USER 10001:10001
WORKDIR /var/lib/scopekv
EXPOSE 8080
# Alive, not ready: a gateway without engines is alive, and GET /readyz says what is missing.
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s \
  CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8080/healthz', timeout=2)"]
ENTRYPOINT ["scopekv"]
CMD ["gateway", "--config", "/etc/scopekv/scopekv.toml"]
