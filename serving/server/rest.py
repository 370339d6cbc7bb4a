"""TF Serving's REST API (contract R1-R15): routes, requests and responses."""

import contextlib
import functools
import json
import logging
import re
import time
import urllib.parse
import weakref
import zlib
from collections.abc import Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import tensorflow as tf
import uvicorn
from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message
from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

from ctrpipe.serving.server.body_cost import Reading, check_cost
from ctrpipe.serving.server.budget import Held
from ctrpipe.serving.server.core import ServedVersion, ServerCore
from ctrpipe.serving.server.errors import ServingError, bad_request
from ctrpipe.serving.server.examples import DEFAULT_SIGNATURE, classify, regress
from ctrpipe.serving.server.http_protocol import HTML, HttpServer, Response, uvicorn_server
from ctrpipe.serving.server.http_request import Limits, Request
from ctrpipe.serving.server.inflate import Damaged, inflate
from ctrpipe.serving.server.json_body import has_booleans, has_tiny_numbers, parse_body
from ctrpipe.serving.server.json_examples import format_classify, format_regress, parse_examples
from ctrpipe.serving.server.json_response import error_body, format_predict
from ctrpipe.serving.server.json_values import shown
from ctrpipe.serving.server.metrics import CONTENT_TYPE, Metrics
from ctrpipe.serving.server.monitoring_config import metrics_path
from ctrpipe.serving.server.options import ServerOptions
from ctrpipe.serving.server.pace import SHORT_SECONDS, Paces
from ctrpipe.serving.server.request_log import classify_record, predict_record, regress_record
from ctrpipe.serving.server.tensors import Kinds, parse_predict

if TYPE_CHECKING:
    from ctrpipe.serving.server.logged_rows import LoggedRows

log = logging.getLogger(__name__)

# The error page of libevent, TF Serving's HTTP library (R5, R16).
_PAGE = "<HTML><HEAD>\n<TITLE>{0} {1}</TITLE>\n</HEAD><BODY>\n<H1>{1}</H1>\n</BODY></HTML>\n"
_METHODS = ("GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH")
_CORS = (
    b"Access-Control-Allow-Origin: *\r\n"
    b"Access-Control-Allow-Methods: POST, GET\r\n"
    b"Access-Control-Allow-Headers: Content-Type\r\n"
)
_HIGHEST_RATIO = 1032  # maximum compression ratio of deflate
_FREE_BYTES = 4 << 10  # bodies up to this size take next to nothing: they are not counted
_REMEMBERED = 500  # characters; `_route` does not cache longer paths
_SIGNATURE = re.compile(rb'"signature_name"\s*:\s*"([^"\\]*)"')
_NEAR_END = 256  # bytes at either end of a body that are searched for it
# The characters of a name in a URI, in addition to slash and colon (RFC 3986); libevent refuses any other target (R16).
_IN_NAME = r"[A-Za-z0-9\-._~!$&'()*+,;=@]|%[0-9A-Fa-f]{2}"
_URI = re.compile(rf"(?:{_IN_NAME}|[/:])*(?:\?(?:{_IN_NAME}|[/:?])*)?(?:#(?:{_IN_NAME}|[/:?])*)?")
_SUFFIX = rf"(?:/versions/(?P<version>[0-9]+)|/labels/(?P<label>(?:{_IN_NAME})+))?"
_POST = re.compile(
    rf"/v1/models/(?P<name>(?:{_IN_NAME})+){_SUFFIX}:(?P<method>classify|regress|predict)", re.IGNORECASE
)
_GET = re.compile(rf"/v1/models(?:/(?P<name>(?:{_IN_NAME})+))?{_SUFFIX}(?P<metadata>/metadata)?", re.IGNORECASE)


def _logged_rows(options: ServerOptions) -> "LoggedRows":
    from ctrpipe.serving.server.logged_rows import LoggedRows  # lazy: pyarrow and pydantic take 0.4 s

    return LoggedRows(options.max_json_memory_bytes)


class _Route(NamedTuple):
    """The parsed path of a request. `method` is the method as typed, or `status` or `metadata`."""

    name: str | None
    version: str | None
    label: str | None
    method: str

    @property
    def number(self) -> int | None:
        """The version as an integer; None without one.

        Raises ServingError above int64; like TF Serving's, the response then has no body (R12).
        """
        if self.version is None:
            return None
        digits = self.version.lstrip("0") or "0"
        if len(digits) > 19 or int(digits) >= 2**63:
            raise ServingError("INVALID_ARGUMENT", None)
        return int(digits)


@functools.lru_cache(1024)
def _route(method: str, target: str) -> _Route | None:
    """Parses the path of a request. Returns None if the request is malformed (R1-R7, R13)."""
    match = _POST.fullmatch(target) if method == "POST" else _GET.fullmatch(target) if method == "GET" else None
    if not match:
        return None
    name, label = match["name"], match["label"]
    return _Route(
        name and urllib.parse.unquote(name, errors="surrogateescape"),
        match["version"],
        label and urllib.parse.unquote(label, errors="surrogateescape"),
        match["method"] if method == "POST" else "metadata" if match["metadata"] == "/metadata" else "status",
    )


def _refused_before(method: str, target: str) -> HTTPStatus | None:
    """Returns the status with which libevent refuses a request before TF Serving's code reads it (R5, R16); None if
    not.
    """
    if method not in _METHODS:
        return HTTPStatus.NOT_IMPLEMENTED
    if not _URI.fullmatch(target):
        return HTTPStatus.BAD_REQUEST
    return None if target[:4].lower() == "/v1/" else HTTPStatus.NOT_FOUND


class RestApi:
    """TF Serving's REST API over the served models.

    Args:
        core: The served models.
        options: The server's flags: timeout, threads, limits, CORS and the monitoring page.
        metrics: The server's metrics.

    Raises:
        InputError: --monitoring_config_file cannot be read.
    """

    def __init__(self, core: ServerCore, options: ServerOptions, metrics: Metrics):
        self._core = core
        self._metrics = metrics
        self._options = options
        self._timeout = options.rest_api_timeout_in_ms / 1000
        self._metrics_path = metrics_path(options.monitoring_config_file)
        self._headers = _CORS if options.rest_api_enable_cors_support else b""
        self._metadata_pages: weakref.WeakKeyDictionary[Any, bytes] = weakref.WeakKeyDictionary()
        self._doubles: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()
        self._logged_rows = _logged_rows(options) if options.rows_as_logged else None
        self._paces = Paces()

    def server(self) -> uvicorn.Server:
        """Returns the HTTP server of these models."""
        limits = Limits(self._options.max_request_bytes, self._timeout)
        threads = self._options.rest_api_num_threads
        busy_poll = self._options.rest_api_busy_poll_micros / 1e6
        return uvicorn_server(HttpServer(self, threads, limits, self._core.budget, busy_poll))

    def is_short(self, request: Request) -> bool:
        """Returns whether a request may be answered on the event loop's thread, where it blocks all others.

        The decision is made before the body is read, by the method, the size, and the time of similar requests.
        """
        if (
            request.method != "POST"
            and request.target != self._metrics_path
            and not request.target.endswith("/metadata")
        ):
            return True
        if b"content-encoding" in request.headers:
            return False
        return self._paces.is_short(_kind(request), len(request.body))

    def answer(self, request: Request) -> Response:
        """Answers a request from any thread. Raises nothing."""
        try:
            return self._answer(request)
        except ServingError as error:
            return Response(error.http_status, error_body(error.message), headers=self._headers)
        except Exception as error:
            log.exception("%s %s failed", request.method, request.target)
            return self.refuse(500, f"{type(error).__name__}: {error}")

    def refuse(self, status: int, message: str) -> Response:
        """Returns an error response."""
        return Response(status, error_body(message), headers=self._headers)

    def _answer(self, request: Request) -> Response:
        target = request.target
        if target.partition("?")[0] == self._metrics_path:
            return self._metrics_page(target)
        started = time.perf_counter()
        find = _route if len(target) < _REMEMBERED else _route.__wrapped__
        route = find(request.method, target)
        if not route and (status := _refused_before(request.method, target)):
            return Response(status, _PAGE.format(status.value, status.phrase).encode(), HTML)
        code = "OK"
        try:
            return Response(200, self._api(route, request), headers=self._headers)
        except ServingError as error:
            code = error.code
            raise
        except Exception:
            code = "INTERNAL"
            raise
        finally:
            # Status, metadata and malformed requests count too (X3).
            name, api = (route.name or "", route.method) if route else ("", "")
            api = api if request.method == "POST" else ""
            self._metrics.record_request(name, api, "REST", code, time.perf_counter() - started)

    def _api(self, route: _Route | None, request: Request) -> bytes:
        """Returns the body of the response to a request below /v1/."""
        if request.method == "OPTIONS":
            origin = request.headers.get(b"origin", b"")
            if b"http://" not in origin and b"https://" not in origin:
                raise ServingError("FAILED_PRECONDITION", None)
            return b""
        number = route.number if route else None
        if not route or not route.method.islower():
            raise bad_request(f"Malformed request: {request.method} {request.target}")
        if request.method == "GET":
            return self._describe(route, number, request)
        return self._infer(route, number, request)

    def _metrics_page(self, target: str) -> Response:
        if target != self._metrics_path:
            message = f"Unexpected path: {target}. Should be {self._metrics_path}"
            return Response(400, message.encode(), CONTENT_TYPE.encode())
        started = time.perf_counter()
        page = self._metrics.page()  # of many models it takes long
        self._paces.record((target, b""), self._metrics, 0, time.perf_counter() - started)
        return Response(200, page, CONTENT_TYPE.encode())

    def _describe(self, route: _Route, number: int | None, request: Request) -> bytes:
        if not route.name:
            raise bad_request("Missing model name in request.")
        if route.method == "status":
            return self._status(route.name, number)
        started = time.perf_counter()
        with self._core.use(route.name, number, route.label) as version:
            page = self._metadata_pages.get(version.servable)
            if page is None:
                page = self._metadata_pages[version.servable] = _metadata(version)
            self._paces.record(_kind(request), version.servable, 0, time.perf_counter() - started)
            return page

    def _status(self, name: str, number: int | None) -> bytes:
        rows = []
        for version in self._core.status(name, number):
            status = {"error_code": version.error_code, "error_message": version.error_message}
            rows.append({"version": str(version.number), "state": version.state, "status": status})
        return _json({"model_version_status": rows})

    def _infer(self, route: _Route, number: int | None, request: Request) -> bytes:
        size = self._plain_size(request)
        deadline = min(request.deadline, time.monotonic() + self._timeout)
        reading = Reading(request.is_over, self._options.max_json_memory_bytes, deadline)
        with self._core.admission.reading(size, reading.seconds_left()) as turn:
            with self._core.admission.parsing(size, reading.seconds_left()):
                body = self._plain(request, size)
                cost = check_cost(body, self._options.max_json_memory_bytes, self._options.max_json_depth)
            if len(body) > _FREE_BYTES:
                self._held(request).grow(cost)
            turn.weigh(cost, reading.seconds_left())
            if route.method == "predict":
                return self._predict(route, number, request, body, reading)
            return self._score_examples(route, number, body, reading)

    def _held(self, request: Request) -> Held:
        """Returns the request's reservation in the budget, which the connection releases."""
        if request.held is None:
            request.held = self._core.budget.hold()
        return request.held

    def _plain_size(self, request: Request) -> int:
        """Returns the decompressed size of the body. gzip states it at the end of the body, and zlib verifies it.

        Raises:
            ServingError: the size exceeds the limit.
        """
        packed = request.body
        if not _is_gzip(request):
            return len(packed)
        size = int.from_bytes(packed[-4:], "little")
        if size > _HIGHEST_RATIO * len(packed):
            return 0
        limit = self._options.max_request_bytes
        if size > limit:
            raise bad_request(f"The request's body is above the limit of {limit} bytes (--max_request_bytes)")
        return size

    def _plain(self, request: Request, size: int) -> bytes:
        """Returns the body, decompressed if it is gzip. A damaged gzip body is empty, as in TF Serving (R11).

        The size is reserved in the budget before the decompression.
        """
        if not _is_gzip(request):
            return request.body
        if not size:
            return b""
        self._held(request).grow(size)
        try:
            plain, is_whole, has_more = inflate(request.body, size, 16 + zlib.MAX_WBITS)
        except Damaged:
            return b""
        return plain if is_whole and not has_more else b""

    def _score_examples(self, route: _Route, number: int | None, body: bytes, reading: Reading) -> bytes:
        """Answers classify and regress requests."""
        method = route.method
        with self._core.admission.parsing(len(body), reading.seconds_left()):
            parsed = parse_body(body, reading)
            signature = _signature_name(parsed)
            batch = parse_examples(parsed, reading)
            del parsed
        with self._core.use(route.name or "", number, route.label) as version:
            check = self._options.enable_signature_method_name_check
            make: Callable[[], PredictionLog]
            if method == "classify":
                classes, scores = classify(version, batch, signature, reading.seconds_left(), check)
                answer = format_classify(classes, scores)
                make = functools.partial(classify_record, version, signature, batch, classes, scores)
            else:
                values = regress(version, batch, signature, reading.seconds_left(), check)
                answer = format_regress(values)
                make = functools.partial(regress_record, version, signature, batch, values)
            self._metrics.record_runtime(version.name, method.capitalize(), version.runtime_seconds)
            if self._core.request_log and self._core.request_log.picks():
                self._core.request_log.add(version, signature, sum(map(len, batch)) + len(answer), make)
            return answer

    def _predict(self, route: _Route, number: int | None, request: Request, body: bytes, reading: Reading) -> bytes:
        """Answers a predict request, and records its pace. A failed request is recorded only if it was slow."""
        started = time.perf_counter()
        try:
            use = self._core.use(route.name or "", number, route.label)
            stack = contextlib.ExitStack()
            version = stack.enter_context(use)
        except ServingError:
            _signature_name(parse_body(body, reading))  # the body's own errors come first (P3)
            raise
        is_done = False
        with stack:
            try:
                answer = self._run(version, body, reading)
                is_done = True
            finally:
                seconds = time.perf_counter() - started
                if not version.servable.waits and (is_done or seconds > SHORT_SECONDS):
                    self._paces.record(_kind(request), version.servable, len(request.body), seconds)
        return answer

    def _inputs(self, version: ServedVersion, body: bytes, reading: Reading) -> tuple[str, dict[str, np.ndarray], bool]:
        """Returns the signature and the inputs of a request, and whether the request is by row.

        The parsed values are freed before the model runs.
        """
        with self._core.admission.parsing(len(body), reading.seconds_left()):
            request = parse_body(body, reading, self._reads_doubles(version))
            signature = _signature_name(request) or DEFAULT_SIGNATURE
            if self._logged_rows:
                named = _signature_name(request)
                if logged := self._logged_rows.inputs(version, request, named, len(body), reading):
                    return *logged, True
            dtypes = version.input_types.get(signature)
            if dtypes is None:
                raise bad_request(f'Serving signature name: "{signature}" not found in signature def')
            if not dtypes:
                name = request.get("signature_name") or "DEFAULT"
                raise bad_request(f"Failed to get input map for signature: {name}")
            kinds = Kinds(has_booleans(body), has_tiny_numbers(body))
            return signature, *parse_predict(request, dtypes, kinds, reading)

    def _run(self, version: ServedVersion, body: bytes, reading: Reading) -> bytes:
        """Returns the response to a request."""
        signature, inputs, by_row = self._inputs(version, body, reading)
        reading.check_time()
        outputs = version.run(signature, inputs, timeout_seconds=reading.seconds_left())
        if self._core.request_log and self._core.request_log.picks():
            size = len(body) + sum(array.nbytes for array in (*inputs.values(), *outputs.values()))
            make = functools.partial(predict_record, version, signature, inputs, outputs)
            self._core.request_log.add(version, signature, size, make)
        if self._core.shadow and self._core.shadow.picks():
            size = sum(array.nbytes for array in (*inputs.values(), *outputs.values()))
            ask = functools.partial(ServedVersion.run, signature=signature, inputs=inputs)
            self._core.shadow.add(version, signature, size, outputs, ask)
        del inputs
        self._metrics.record_runtime(version.name, "Predict", version.runtime_seconds)
        reading.check_time()
        return format_predict(outputs, by_row)

    def _reads_doubles(self, version: ServedVersion) -> bool:
        """Returns whether a signature has a float64 input, whose last bits depend on RapidJSON (J12)."""
        has_doubles = self._doubles.get(version.servable)
        if has_doubles is None:
            has_doubles = any(tf.float64 in dtypes.values() for dtypes in version.input_types.values())
            self._doubles[version.servable] = has_doubles
        return has_doubles


def _is_gzip(request: Request) -> bool:
    return b"gzip" in request.headers.get(b"content-encoding", b"")


def _kind(request: Request) -> tuple[str, bytes]:
    """Returns the key for requests with a common pace: the path, and the signature if it is at either end of the
    body.
    """
    body = request.body
    match = _SIGNATURE.search(body, 0, _NEAR_END) or _SIGNATURE.search(body, max(0, len(body) - _NEAR_END))
    return request.target, match[1] if match else b""


def _signature_name(request: dict[str, Any]) -> str:
    name = request.get("signature_name", "")
    if not isinstance(name, str):
        raise bad_request(
            f"JSON Value: {shown(request)} not formatted correctly. 'signature_name' key must be a string value."
        )
    return name


def _metadata(version: ServedVersion) -> bytes:
    signatures = {name: _in_order(definition) for name, definition in version.signatures.items()}
    spec = {"name": version.name, "version": str(version.number), "signature_name": ""}
    signature_def = _json({"signature_def": signatures})
    return b'{\n"model_spec":%b,\n"metadata": {"signature_def": %b}\n}\n' % (_json(spec), signature_def)


def _in_order(message: Message) -> Any:
    """Converts a message to JSON values with fields in the order of their numbers, as C++ prints them (M1).

    Python would print the fields that are set first.
    """
    values = json_format.MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    return _sorted_by_number(message.DESCRIPTOR, values)


def _sorted_by_number(kind: Descriptor, value: object) -> Any:
    if isinstance(value, list):
        return [_sorted_by_number(kind, item) for item in value]
    if not isinstance(value, dict) or kind.full_name.startswith("google.protobuf."):
        return value
    if kind.GetOptions().map_entry:
        inner = kind.fields_by_name["value"].message_type
        return {key: _sorted_by_number(inner, item) if inner else item for key, item in value.items()}
    fields = sorted((field for field in kind.fields if field.name in value), key=lambda field: field.number)
    return {
        field.name: _sorted_by_number(field.message_type, value[field.name])
        if field.message_type
        else value[field.name]
        for field in fields
    }


def _json(value: object) -> bytes:
    """Returns JSON in the format of protobuf's JSON printer."""
    text = json.dumps(value, indent=1, ensure_ascii=False).replace("<", r"\u003c").replace(">", r"\u003e")
    return (text + "\n").encode("utf-8", "surrogateescape")
