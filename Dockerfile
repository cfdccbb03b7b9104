# The image that every task of a job runs, on Kubernetes, Vertex AI or any other platform:
#   docker build --build-arg=KIND=cpu --tag=tfps .      or KIND=gpu
# Packages and project are layers of their own, so that a changed project is a small upload.
FROM python:3.11.13-slim-bookworm AS packages
ARG KIND=cpu
COPY docker/${KIND}.txt /packages.txt
RUN python -m venv /packages \
    && /packages/bin/pip install --no-cache-dir --no-deps --require-hashes \
       --requirement=/packages.txt

FROM python:3.11.13-slim-bookworm
# tini is process 1: without it SIGTERM would not end a process that has not asked for it.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends tini=0.19.0-* \
    && rm -rf /var/lib/apt/lists/*
# NVIDIA's are for its container runtime, which adds the driver; CUDA is among the packages.
ENV NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    NVIDIA_VISIBLE_DEVICES=all \
    PATH=/packages/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
COPY --from=packages /packages /packages
WORKDIR /app
COPY tfps tfps
COPY trainer trainer
COPY cloud cloud
COPY configs configs
USER 1000:1000
HEALTHCHECK --start-period=10m --interval=30s --timeout=10s CMD ["python", "-m", "cloud.probe"]
ENTRYPOINT ["tini", "--"]
CMD ["python", "-m", "trainer.task", "--help"]
