# Stepgraph with PyTorch on the CPU. From the root of a checkout:
#   docker build -t stepgraph .
#   docker run --rm --user "$(id -u):$(id -g)" -v "$PWD:/work" stepgraph run gan.yaml --allow models
# TensorFlow instead: docker build --build-arg EXTRA=tensorflow -t stepgraph .
FROM python:3.11-slim AS build
WORKDIR /source
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY graphspec graphspec
COPY compiler compiler
COPY runtime runtime
COPY schemas schemas
COPY stepgraph stepgraph
COPY docs/errors docs/errors
COPY examples examples
ARG EXTRA=torch
# The index of PyTorch's CPU builds comes second: pip prefers `+cpu` of the same version, which is a tenth of the size.
RUN python -m venv /opt/stepgraph \
 && /opt/stepgraph/bin/pip install --no-cache-dir -c constraints.txt hatchling \
 && /opt/stepgraph/bin/pip install --no-cache-dir -c constraints.txt --no-build-isolation \
      --extra-index-url https://download.pytorch.org/whl/cpu ".[${EXTRA}]"

FROM python:3.11-slim
COPY --from=build /opt/stepgraph /opt/stepgraph
# What `--allow` named for a run is remembered in a volume of its own (-v stepgraph-state:/state), never in the mounted
# folder: one that came from elsewhere would bring its own permission.
ENV PATH="/opt/stepgraph/bin:$PATH" PYTHONUNBUFFERED=1 MPLCONFIGDIR=/tmp/matplotlib STEPGRAPH_STATE=/state
WORKDIR /work
RUN useradd --create-home stepgraph && mkdir -m 1777 /state && chown stepgraph /work
USER stepgraph
ENTRYPOINT ["stepgraph"]
CMD ["--help"]
