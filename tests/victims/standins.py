"""A server with the exact answers of known servers, all around one linear model of three classes."""

from __future__ import annotations

import base64
import io
import json
import wave
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from PIL import Image
from torch import Tensor

CLASSES = ("cat", "dog", "owl")
SHAPE = (3, 4, 4)
WEIGHT = np.random.default_rng(3).normal(size=(3 * 16, 3))
SIGNAL = np.random.default_rng(4).normal(size=(20, 3))
Array = np.ndarray[Any, Any]
X = torch.from_numpy(np.random.default_rng(5).integers(0, 256, (5, *SHAPE)).astype(np.float32) / 255)


def probabilities(x: Array) -> Array:
    """(b, ...) -> (b, 3)"""
    flat = np.asarray(x, dtype=np.float64).reshape(len(x), -1)
    scores = np.exp(flat @ (WEIGHT if flat.shape[1] == len(WEIGHT) else SIGNAL))
    return scores / scores.sum(1, keepdims=True)


def expected(x: Tensor) -> Tensor:
    """The scores that a victim should return."""
    return torch.from_numpy(np.log(probabilities(x.numpy()))).float()


class BadRequest(Exception):
    """Answered with its status and text."""

    def __init__(self, status: int, answer: object) -> None:
        self.status, self.answer = status, answer


def _picture(content: bytes) -> Array:
    return np.moveaxis(np.asarray(Image.open(io.BytesIO(content)), dtype=np.float64) / 255, -1, 0)[None]


def kserve(content: bytes, name: str = "input", last: bool = False) -> object:
    """With `last`, the model takes bytes, channels last."""
    (given,) = json.loads(content)["inputs"]
    if given["name"] != name:
        raise BadRequest(400, {"error": f"unexpected inference input '{given['name']}' for model 'pets'"})
    assert set(given) == {"name", "shape", "datatype", "data"}
    assert given["datatype"] == ("UINT8" if last else "FP32")
    x = np.array(given["data"]).reshape(given["shape"])
    scores = probabilities(np.moveaxis(x, -1, 1) / 255 if last else x)
    outputs = [
        {"name": "probs", "datatype": "FP32", "shape": list(scores.shape), "data": scores.ravel().tolist()},
        {"name": "twice", "datatype": "FP32", "shape": list(scores.shape), "data": np.sqrt(scores).ravel().tolist()},
    ]
    return {"model_name": "pets", "model_version": "1", "id": "6f2c", "outputs": outputs}


def tfserving(content: bytes) -> object:
    given = json.loads(content)
    if "instances" not in given:
        raise BadRequest(400, {"error": "Missing 'inputs' or 'instances' key"})
    return {"predictions": probabilities(np.moveaxis(np.array(given["instances"]), -1, 1)).tolist()}


def _top(x: Array, most: int = 2) -> list[tuple[str, float]]:
    (row,) = probabilities(x)
    return [(CLASSES[k], float(row[k])) for k in np.argsort(-row)[:most]]


def huggingface(content: bytes) -> object:
    return [{"label": label, "score": score} for label, score in _top(_picture(content))]


def huggingface_audio(content: bytes) -> object:
    with wave.open(io.BytesIO(content)) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (16000, 1, 2)
        values = np.frombuffer(file.readframes(file.getnframes()), "<i2") / 32767
    return [{"label": label, "score": score} for label, score in _top(values[None])]


def torchserve(content: bytes) -> object:
    return dict(_top(_picture(content)))


def mlflow(content: bytes) -> object:
    given = json.loads(content)
    if "inputs" in given:
        return {"predictions": probabilities(np.array(given["inputs"])).tolist()}
    scores = probabilities(np.array([row["features"] for row in given["instances"]]))  # as SageMaker's algorithms
    return {"predictions": [{"score": row.tolist(), "predicted_label": int(row.argmax())} for row in scores]}


def upload(content: bytes) -> object:
    """A form with an image and a number."""
    limit = content.split(b"\r\n", 1)[0]
    fields = {part.split(b'name="', 1)[1].split(b'"', 1)[0]: part for part in content.split(limit)[1:-1]}
    assert fields[b"top"].endswith(b"\r\n\r\n2\r\n")
    assert b"Content-Type: image/png" in fields[b"file"]
    top = _top(_picture(fields[b"file"].split(b"\r\n\r\n", 1)[1]))
    return {"predictions": [{"name": label, "confidence": score} for label, score in top]}


def bentoml(content: bytes) -> object:
    return probabilities(np.array(json.loads(content)["inputs"])).tolist()


def names(content: bytes) -> object:
    return {"outputs": [CLASSES[k] for k in probabilities(np.array(json.loads(content)["inputs"])).argmax(1)]}


def rayserve(content: bytes) -> object:
    return probabilities(np.array(json.loads(content))).tolist()


def chat(content: bytes) -> object:
    """OpenAI's chat completions; says 'I cannot tell.' to a black image."""
    given = json.loads(content)
    if given["model"] != "gpt":
        raise BadRequest(404, {"error": {"message": "The model does not exist", "code": "model_not_found"}})
    text, image = given["messages"][0]["content"]
    x = _picture(base64.b64decode(image["image_url"]["url"].removeprefix("data:image/png;base64,")))
    lines = [line.split(": ") for line in text["text"].splitlines()[1:]]
    keys = {name: key for key, name in lines}
    ranked = [(keys[name], score) for name, score in _top(x, 3)]
    said = f"{ranked[0][0]}." if x.any() else "I cannot tell."
    top = [
        {"token": " " * place + key, "logprob": float(np.log(0.9 * score))} for place, (key, score) in enumerate(ranked)
    ]
    top.insert(1, {"token": "The", "logprob": float(np.log(0.1))})
    first = {"token": top[0]["token"], "logprob": top[0]["logprob"], "top_logprobs": top}
    logprobs = {"content": [first]} if given.get("logprobs") else None
    message = {"role": "assistant", "content": said}
    choice = {"index": 0, "message": message, "logprobs": logprobs, "finish_reason": "length"}
    return {"id": "chatcmpl-1", "object": "chat.completion", "model": given["model"], "choices": [choice]}


INPUTS: dict[str, list[dict[str, Any]]] = {  # of models that the server describes
    "named": [{"name": "pixels", "datatype": "FP32", "shape": [-1, *SHAPE]}],
    "last": [{"name": "pixels", "datatype": "UINT8", "shape": [1, *SHAPE[1:], SHAPE[0]]}],
    "small": [{"name": "pixels", "datatype": "FP32", "shape": [-1, 3, 2, 2]}],
    "text": [{"name": "pixels", "datatype": "BYTES", "shape": [-1]}],
    "pair": [{"name": name, "datatype": "FP32", "shape": [-1, *SHAPE]} for name in ("left", "right")],
}
ROUTES: dict[str, Callable[[bytes], object]] = {
    "/v2/models/pets/infer": kserve,
    "/v2/models/named/infer": partial(kserve, name="pixels"),
    "/v2/models/last/infer": partial(kserve, name="pixels", last=True),
    "/v1/models/pets:predict": tfserving,
    "/models/org/pets": huggingface,
    "/models/org/sounds": huggingface_audio,
    "/predictions/pets": torchserve,
    "/invocations": mlflow,
    "/upload": upload,
    "/classify": bentoml,
    "/serve": rayserve,
    "/names": names,
    "/v1/chat/completions": chat,
}


@dataclass
class Requests:
    """What the server received."""

    paths: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)


def create_app(seen: Requests) -> FastAPI:
    app = FastAPI()

    @app.get("/v2/models/{name}")
    async def metadata(name: str) -> JSONResponse:
        if name not in INPUTS:
            return JSONResponse({"error": "no metadata"}, 404)
        outputs = [{"name": "probs", "datatype": "FP32", "shape": [-1, 3]}]
        return JSONResponse({"name": name, "platform": "onnx", "inputs": INPUTS[name], "outputs": outputs})

    @app.post("/{path:path}")
    async def answer(path: str, request: Request) -> JSONResponse:
        seen.paths.append(f"/{path}")
        seen.headers.append(dict(request.headers))
        content = await request.body()
        try:
            if f"/{path}" not in ROUTES:
                raise BadRequest(404, {"detail": "Not Found"})
            return JSONResponse(ROUTES[f"/{path}"](content))
        except BadRequest as error:
            return JSONResponse(error.answer, error.status)
        except Exception as error:
            return JSONResponse({"error": f"{type(error).__name__}: {error}"}, 500)

    return app
