# The image of docker-compose.yml. Alone it runs everything, with its own PostgreSQL and Valkey:
#   docker build -t evertalk .
#   docker run --init --read-only --tmpfs /tmp -v evertalk:/var/lib/evertalk -p 127.0.0.1:8080:8080 evertalk
ARG PYTHON_IMAGE=python:3.13.18-slim

FROM ${PYTHON_IMAGE} AS build
WORKDIR /app
COPY requirements.lock .
RUN python -m venv /venv
RUN /venv/bin/pip install --no-cache-dir --no-deps --require-hashes -r requirements.lock
COPY . .
RUN python -m compileall -q bot shared web worker migrations

# What finds what was meant, in a container of its own: docker build --target meaning -t evertalk-meaning .
FROM ${PYTHON_IMAGE} AS build-meaning
COPY requirements-meaning.lock .
RUN python -m venv /venv
RUN /venv/bin/pip install --no-cache-dir --no-deps --require-hashes -r requirements-meaning.lock

FROM ${PYTHON_IMAGE} AS meaning
RUN useradd --uid 10001 --no-create-home evertalk
RUN install -d -m 700 -o 10001 -g 10001 /run/meaning
COPY --from=build-meaning /venv /venv
COPY --from=build /app/shared /app/shared
WORKDIR /app
USER 10001:10001
ENV PATH=/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
CMD ["python", "-m", "shared.adapters.meaning.process", "/run/meaning/meaning.sock"]

FROM ${PYTHON_IMAGE}
RUN useradd --uid 10001 --no-create-home evertalk
# A new volume has the owner that its place has in the image.
RUN install -d -m 700 -o 10001 -g 10001 /var/lib/evertalk /run/meaning
COPY --from=build /venv /venv
COPY --from=build /app /app
WORKDIR /app
USER 10001:10001
ENV PATH=/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
ENV EVERTALK_DATA_DIR=/var/lib/evertalk EVERTALK_HTTP_HOST=0.0.0.0
STOPSIGNAL SIGTERM
EXPOSE 8080
CMD ["python", "-m", "shared", "up"]
