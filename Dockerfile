# One image for every part of Mycroft: workers, sink, collector, testbed and the command line.
# What runs has neither compiler nor sources; what changes seldom is built first.

FROM python:3.11.14-slim-bookworm AS base
RUN python3 -m venv /opt/mycroft
ENV PATH=/opt/mycroft/bin:$PATH PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
COPY requirements.image.lock /
RUN pip install --quiet --require-hashes -r /requirements.image.lock

FROM base AS build
RUN apt-get update -q && apt-get install -y --no-install-recommends cmake g++ make
COPY . /src
RUN pip wheel --quiet --no-deps --no-build-isolation --wheel-dir /dist /src

FROM base
# Compiled kernels are for the processor that compiled them: a worker on another one compiles them once more.
ENV PYTHONUNBUFFERED=1 NUMBA_CACHE_DIR=/var/cache/mycroft
RUN useradd --create-home --uid 10001 mycroft && install -d -o mycroft /var/cache/mycroft
COPY --from=build /dist /dist
RUN pip install --quiet --no-deps /dist/*.whl
USER mycroft
WORKDIR /home/mycroft
RUN python3 -m streams.compile
ENTRYPOINT ["mycroft"]
CMD ["--help"]
