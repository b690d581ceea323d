# One image for both processes. `make docker-build` builds the wheel and this image.
#
# To pin the base image by digest, look it up and set it:
#   docker buildx imagetools inspect python:3.13.14-slim-trixie
#   make docker-build PYTHON_IMAGE=python:3.13.14-slim-trixie@sha256:...
ARG PYTHON_IMAGE=python:3.13.14-slim-trixie

FROM ${PYTHON_IMAGE} AS build
WORKDIR /src
# Secrets of the build name the index of packages and its certificates, where pip needs them.
# Only compileall writes bytecode: what pip leaves behind knows the time of the build.
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_CONFIG_FILE=/run/secrets/pip.conf PYTHONDONTWRITEBYTECODE=1
RUN python -m venv --without-pip /opt/harbourmaster
# Includes the packages for tracing, which are loaded only if tracing is enabled.
COPY requirements-tracing.txt ./
RUN --mount=type=secret,id=pip.conf --mount=type=secret,id=ca.crt \
    python -m pip --python /opt/harbourmaster/bin/python install --no-compile --require-hashes --only-binary :all: --requirement requirements-tracing.txt
COPY dist/harbourmaster-*.whl ./
RUN python -m pip --python /opt/harbourmaster/bin/python install --no-compile --no-deps --no-index ./harbourmaster-*.whl
# The client library reads kubeconfigs here; its generated API classes are 47 of its 48 MB.
RUN cd /opt/harbourmaster/lib/python3.*/site-packages/kubernetes_asyncio \
    && rm -r client/api client/models \
    && mkdir client/models \
    && touch client/models/__init__.py \
    && sed -i -e '/^from kubernetes_asyncio\.client\.\(api\|models\)\./d' -e '/^__all__/,$d' client/__init__.py \
    && find . -name '*_test.py' -exec rm {} + \
    && /opt/harbourmaster/bin/python -B -c 'import harbourmaster.kube.kubeconfig'
# Debug symbols are 25 MB.
COPY deploy/image/strip.py ./
RUN python strip.py /opt/harbourmaster/lib
COPY --chmod=0444 dist/harbourmaster-*[0-9].cdx.json /opt/harbourmaster/share/sbom/harbourmaster.cdx.json
RUN /opt/harbourmaster/bin/python -m compileall -q --invalidation-mode unchecked-hash /opt/harbourmaster/lib

FROM ${PYTHON_IMAGE}
ARG VERSION=unknown
ARG REVISION=unknown
ARG SOURCE=unknown
LABEL org.opencontainers.image.title="harbourmaster" \
      org.opencontainers.image.description="Decides where, when and in which cluster Kubernetes pods run" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.source="${SOURCE}" \
      org.opencontainers.image.version="${VERSION}"
# The processes need no installer, and start with 0.3 s less work if the standard library is compiled.
RUN rm -rf /usr/local/bin/pip* /usr/local/lib/python3.*/ensurepip /usr/local/lib/python3.*/*-packages/pip* \
    && python -m compileall -q --invalidation-mode unchecked-hash $(python -c 'import os; print(os.path.dirname(os.__file__))')
COPY --from=build /opt/harbourmaster /opt/harbourmaster
# The C version of frozenlist takes 1 MB, for a few short lists.
ENV FROZENLIST_NO_EXTENSIONS=1
ENV PATH=/opt/harbourmaster/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
# glibc raises both thresholds by itself and then keeps what large requests and lists left behind.
ENV MALLOC_MMAP_THRESHOLD_=65536 MALLOC_TRIM_THRESHOLD_=65536
WORKDIR /
USER 65532:65532
EXPOSE 6443 8080 9443
STOPSIGNAL SIGTERM
ENTRYPOINT ["harbourmaster"]
