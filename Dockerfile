# docker build --target cpu -t rlab .            docker run --rm -v "$PWD:/data" rlab audit audit.yaml --out audit
# docker build --target cuda -t rlab:cuda .      docker run --rm --gpus all -v "$PWD:/data" rlab:cuda attack ... --device cuda
#
# TORCH_INDEX is the package index for torch. PyTorch's own index of CPU wheels makes the image gigabytes smaller.
ARG PYTHON=3.11

FROM python:${PYTHON}-slim AS base
ARG EXTRAS=onnx,http,ecg,video,harden
ARG TORCH_INDEX=
COPY pyproject.toml constraints.txt README.md LICENSE NOTICE /source/
COPY rlab /source/rlab
COPY examples /source/examples
COPY agents /source/agents
RUN torch=$(grep '^torch==' /source/constraints.txt) \
    && pip install --no-cache-dir ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} "$torch" \
    && pip install --no-cache-dir --constraint /source/constraints.txt "/source[$EXTRAS]" \
    && rm -rf /source && useradd --create-home rlab && install --directory --owner=rlab /data
USER rlab
WORKDIR /data
ENTRYPOINT ["rlab"]
CMD ["--help"]

FROM base AS cuda
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility

FROM base AS cpu
ENV CUDA_VISIBLE_DEVICES=
