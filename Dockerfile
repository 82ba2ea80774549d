# One image for the three roles: python -m sidecar.agent (the default), sidecar.aggregator, injector.
# Any base with Python 3.11 or newer at `python`, and pip to build with, will do; pin it by its digest for a release:
#   --build-arg BASE=docker.io/library/python:3.13-slim@sha256:...
ARG BASE=docker.io/library/python:3.13-slim

FROM ${BASE} AS build
COPY requirements/runtime.txt /tmp/runtime.txt
RUN python -m pip install --no-cache-dir --no-compile --no-deps --require-hashes --only-binary :all: \
        --target /opt/lora-sidecar -r /tmp/runtime.txt \
    && rm -rf /opt/lora-sidecar/bin
COPY sidecar /opt/lora-sidecar/sidecar
COPY injector /opt/lora-sidecar/injector
# By hash and never checked again: the image's files do not change, and their times may.
RUN python -m compileall -q --invalidation-mode unchecked-hash /opt/lora-sidecar

FROM ${BASE}
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="lora-sidecar" \
      org.opencontainers.image.description="LoRA adapters on every SGLang pod, and a status that is true" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/lora-sidecar /opt/lora-sidecar
# HOME: the user has no entry in /etc/passwd, and libraries ask where it lives.
ENV PYTHONPATH=/opt/lora-sidecar \
    HOME=/nonexistent \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1
USER 65532:65532
WORKDIR /
CMD ["python", "-m", "sidecar.agent"]
