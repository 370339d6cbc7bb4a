"""TF Serving's REST API as a raw ASGI application (contract sections 1 to 8)."""

import asyncio
import concurrent.futures
import gzip
import json
import re
import urllib.parse
import zlib
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf import json_format

from serving.server.core import ServerCore
from serving.server.errors import ServingError, bad_request
from serving.server.json_body import parse_body
from serving.server.tensors import format_predict, parse_predict

MAX_BODY_BYTES = 64 << 20
# What libevent answers outside /v1/ (R5).
_NOT_FOUND = b"<HTML><HEAD>\n<TITLE>404 Not Found</TITLE>\n</HEAD><BODY>\n<H1>Not Found</H1>\n</BODY></HTML>\n"
_SUFFIX = r"(?:/versions/(?P<version>\d+)|/labels/(?P<label>[^/:]+))?"
_POST = re.compile(rf"/v1/models/(?P<name>[^/:]+){_SUFFIX}:(?P<method>classify|regress|predict)", re.IGNORECASE)
_GET = re.compile(rf"/v1/models(?:/(?P<name>[^/:]+))?{_SUFFIX}(?P<metadata>/metadata)?", re.IGNORECASE)


class _NoPage(Exception):
    """A path that is neither under /v1/ nor another page of the server (R5)."""


class RestApp:
    """The models behind TF Serving's URLs.

    Args:
        core: The models.
        timeout_seconds: Limit of one request, answered with 504.
        threads: Requests that run at the same time.
    """

    def __init__(self, core: ServerCore, timeout_seconds: float = 30.0, threads: int = 4):
        self._core = core
        self._timeout = timeout_seconds
        self._pool = concurrent.futures.ThreadPoolExecutor(threads, thread_name_prefix="predict")

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        try:
            body = await self._answer(scope, receive)
            await _send(send, 200, body)
        except _NoPage:
            await _send(send, 404, _NOT_FOUND, b"text/html")
        except ServingError as error:
            body = b"" if error.message is None else _pretty({"error": error.message})
            await _send(send, error.http_status, body)

    async def _answer(self, scope: dict[str, Any], receive: Any) -> bytes:
        path = scope["raw_path"].decode("ascii", "replace")
        query = scope["query_string"].decode("ascii", "replace")
        target = f"{path}?{query}" if query else path  # the query is part of the matched path (R6)
        method = scope["method"]
        if not path.lower().startswith("/v1/"):
            raise _NoPage()
        if method == "OPTIONS":
            origin = dict(scope["headers"]).get(b"origin", b"")
            if not origin.startswith((b"http://", b"https://")):
                raise ServingError("INVALID_ARGUMENT", None)
            return b""
        if method == "POST" and (found := _POST.fullmatch(target)):
            body = await _read(scope, receive)
            return await self._in_thread(self._predict, found, body)
        if method == "GET" and (found := _GET.fullmatch(target)):
            return await self._in_thread(self._metadata if found["metadata"] else self._status, found)
        raise bad_request(f"Malformed request: {method} {target}")

    async def _in_thread(self, work: Any, *arguments: Any) -> bytes:
        future = asyncio.get_running_loop().run_in_executor(self._pool, work, *arguments)
        try:
            return await asyncio.wait_for(future, self._timeout)
        except TimeoutError as error:
            raise ServingError("DEADLINE_EXCEEDED", "Timed out") from error

    # Requests ---------------------------------------------------------------------------------------------------

    def _predict(self, found: re.Match[str], body: bytes) -> bytes:
        number = _number(found["version"])
        request = parse_body(body)
        if found["method"].lower() != "predict":
            raise ServingError("UNIMPLEMENTED", f"Method {found['method']} is not implemented by this server")
        signature = request.get("signature_name", "serving_default")
        if not isinstance(signature, str):
            raise bad_request("Request not formatted correctly. 'signature_name' key must be a string value.")
        with self._core.use(*_model(found, number)) as version:
            if signature not in version.signatures:
                raise bad_request(f'Serving signature name: "{signature}" not found in signature def')
            definition = version.signatures[signature]
            dtypes = {name: tf.as_dtype(info.dtype) for name, info in definition.inputs.items()}
            inputs, by_row = parse_predict(request, dtypes)
            outputs = version.run(signature, inputs, timeout_seconds=self._timeout)
            return format_predict({name: np.asarray(value) for name, value in outputs.items()}, by_row)

    def _status(self, found: re.Match[str]) -> bytes:
        if not found["name"]:
            raise bad_request("Missing model name in request.")
        name, number = urllib.parse.unquote(found["name"]), _number(found["version"])
        chosen = self._core.status(name, number)
        rows = []
        for version in chosen:
            status = {"error_code": version.error_code, "error_message": version.error_message}
            rows.append({"version": str(version.number), "state": version.state, "status": status})
        return _pretty({"model_version_status": rows})

    def _metadata(self, found: re.Match[str]) -> bytes:
        if not found["name"]:
            raise bad_request("Missing model name in request.")
        number = _number(found["version"])
        with self._core.use(*_model(found, number)) as version:
            signatures = {name: _signature(value) for name, value in version.signatures.items()}
            spec = {"name": version.name, "signature_name": "", "version": str(version.number)}
            return _pretty({"model_spec": spec, "metadata": {"signature_def": {"signature_def": signatures}}})


def _model(found: re.Match[str], number: int | None) -> tuple[str, int | None, str | None]:
    label = found["label"]
    return urllib.parse.unquote(found["name"] or ""), number, None if label is None else urllib.parse.unquote(label)


def _signature(definition: Any) -> dict[str, Any]:
    value = json_format.MessageToDict(
        definition, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    for side in ("inputs", "outputs"):
        for info in value[side].values():
            shape = info.setdefault("tensor_shape", {"dim": [], "unknown_rank": False})
            for dim in shape["dim"]:
                dim.setdefault("name", "")
    return value


def _number(text: str | None) -> int | None:
    if text is None:
        return None
    if int(text) >= 2**63:
        raise ServingError("INVALID_ARGUMENT", None)  # TF Serving returns before it writes the error (R12)
    return int(text)


def _pretty(value: Any) -> bytes:
    return (json.dumps(value, indent=4) + "\n").encode()


async def _read(scope: dict[str, Any], receive: Any) -> bytes:
    parts, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ServingError("CANCELLED", "The client closed the connection")
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        more = message.get("more_body", False)
        if size > MAX_BODY_BYTES:
            raise bad_request(f"The request body is above the limit of {MAX_BODY_BYTES} bytes")
    body = b"".join(parts)
    if dict(scope["headers"]).get(b"content-encoding") == b"gzip":
        return _decompress(body)
    return body


def _decompress(body: bytes) -> bytes:
    decompressor = zlib.decompressobj(16 + zlib.MAX_WBITS)
    try:
        plain = decompressor.decompress(body, MAX_BODY_BYTES + 1)
    except (zlib.error, gzip.BadGzipFile) as error:
        raise bad_request("Failed to decompress the request body") from error
    if len(plain) > MAX_BODY_BYTES:
        raise bad_request(f"The request body is above the limit of {MAX_BODY_BYTES} bytes")
    return plain


async def _send(send: Any, status: int, body: bytes, content_type: bytes = b"application/json") -> None:
    headers = [(b"content-type", content_type), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
