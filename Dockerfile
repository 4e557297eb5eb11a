# assay on the CPU: servers over HTTP, the bundled model, the viewer. For torch or vLLM, start from their images and `pip install '.[hf]'`.
#   docker build -t assay .
#   docker run --rm -v "$PWD:/work" assay run --tasks first_steps
#   docker run --rm -v "$PWD:/work" -p 127.0.0.1:8123:8123 assay view runs --host 0.0.0.0 --port 8123 --allow_remote
FROM python:3.11-slim AS wheel
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.11-slim
COPY --from=wheel /wheels /wheels
RUN pip install --no-cache-dir "$(ls /wheels/*.whl)[hub,metrics,view]" && rm -r /wheels && useradd --create-home --uid 1000 assay
USER assay
WORKDIR /work
ENV PYTHONUNBUFFERED=1
ENTRYPOINT ["assay"]
CMD ["--help"]
