"""A client of TF Serving's REST API."""

import random
import re
import time
import urllib.parse
from typing import Any

import numpy as np
import urllib3
from urllib3 import exceptions

from ctrpipe.common.errors import InputError, one_line
from ctrpipe.serving.client.columns import is_named, read_json, read_output
from ctrpipe.serving.client.label_split import LabelSplit
from ctrpipe.serving.client.model_client import (
    FIRST_WAIT_SECONDS,
    LONGEST_WAIT_SECONDS,
    RETRIES,
    TIMEOUT_SECONDS,
    Answer,
    ModelClient,
    VersionChoice,
    VersionStatus,
)
from ctrpipe.serving.predict_body import predict_body

RETRIED = (429, 503)
_IDLE_CONNECTIONS = 256
_PIECE_BYTES = 1 << 20
_URL = re.compile(r"(?P<model>.*/v1/models/[^/:]+)(?:/versions/(?P<version>\d+)|/labels/(?P<label>[^/:]+))?/?")


class RestClient(ModelClient):
    """A client over REST, with a pool of keep-alive connections.

    Retries a call with exponential backoff if the server is busy (429, 503), unreachable, or closes the connection.
    This is safe, because all requests are read-only. A call that times out is not retried.

    Args:
        url: http://HOST:PORT/v1/models/NAME, optionally followed by /versions/N or /labels/L.
        label: The label for calls that name no version or label. Only for a URL without a version or label.
        split: Divides such calls between labels, instead of `label`.
        timeout: Seconds for one call, including its retries and the waits between them.
        retries: The largest number of retries of a call.
        say_version: Whether answers name their version. Each call then looks up the version first and requests it
            by number.

    Raises:
        InputError: the URL has another form, or names a version or label in addition to `label` or `split`.
    """

    def __init__(
        self,
        url: str,
        *,
        label: str | None = None,
        split: LabelSplit | None = None,
        timeout: float = TIMEOUT_SECONDS,
        retries: int = RETRIES,
        say_version: bool = False,
    ):
        parts = _URL.fullmatch(url)
        try:
            parsed = urllib3.util.parse_url(parts["model"] if parts else "")
            if parts is None or parsed.scheme not in ("http", "https"):
                raise exceptions.LocationValueError(url)
            self._pool = urllib3.connection_from_url(parsed.url, maxsize=_IDLE_CONNECTIONS)
        except (exceptions.HTTPError, exceptions.LocationValueError) as error:
            raise InputError(f"{url}: not a URL like http://127.0.0.1:8501/v1/models/ctr") from error
        if (label or split) and (parts["version"] or parts["label"]):
            raise InputError(f"{url}: it names a version or a label already; leave that out of the URL")
        named = urllib.parse.unquote(parts["label"]) if parts["label"] else label
        super().__init__(
            url.rstrip("/"), VersionChoice(int(parts["version"]) if parts["version"] else None, named), split
        )
        self._path = parsed.path or ""
        self._timeout = timeout
        self._retries = retries
        self._say_version = say_version
        self._only_outputs: dict[str, str] = {}

    def close(self) -> None:
        self._pool.close()

    def status(self) -> list[VersionStatus]:
        answer = self._call("GET", self._path)
        try:
            return [
                VersionStatus(int(one["version"]), one["state"], status["error_code"], status["error_message"])
                for one in answer["model_version_status"]
                for status in [one["status"]]
            ]
        except (LookupError, TypeError, ValueError) as error:
            raise InputError(f"{self.address}: the answer is not a status; is this TF Serving's REST API?") from error

    def _metadata(self, target: VersionChoice) -> dict[str, Any]:
        answer = self._call("GET", f"{self._url_of(target)}/metadata")
        if "metadata" not in answer or "model_spec" not in answer:
            raise InputError(f"{self.address}: the answer is not metadata; is this TF Serving's REST API?")
        return answer

    def _predict(self, arrays: dict[str, np.ndarray], signature_name: str, target: VersionChoice) -> Answer:
        label = target.label
        if self._say_version and target.version is None:
            target = VersionChoice(int(self._metadata(target)["model_spec"]["version"]))
        answer = self._call("POST", f"{self._url_of(target)}:predict", predict_body(signature_name, arrays))
        if "outputs" not in answer:
            raise InputError(f"{self.address}: the answer has no 'outputs'; is this TF Serving's REST API?")
        outputs = answer["outputs"]
        named = outputs if is_named(outputs) else {self._only_output(signature_name, target): outputs}
        try:
            tensors = {name: read_output(values) for name, values in named.items()}
        except ValueError as error:
            raise InputError(f"{self.address}: the answer holds no tensor ({error})") from error
        return Answer(tensors, label, target.version)

    def _only_output(self, signature_name: str, target: VersionChoice) -> str:
        """Returns and caches the name of a signature's only output, which responses omit (O2)."""
        if signature_name not in self._only_outputs:
            metadata = self._metadata(target)["metadata"]
            try:
                signature = metadata["signature_def"]["signature_def"][signature_name]
                [self._only_outputs[signature_name]] = signature["outputs"]
            except (LookupError, TypeError, ValueError) as error:
                raise InputError(
                    f"{self.address}: the metadata does not name the output of {signature_name}"
                ) from error
        return self._only_outputs[signature_name]

    def _url_of(self, target: VersionChoice) -> str:
        if target.version is not None:
            return f"{self._path}/versions/{target.version}"
        return (
            self._path if target.label is None else f"{self._path}/labels/{urllib.parse.quote(target.label, safe='')}"
        )

    # One call --------------------------------------------------------------------------------------------------------

    def _call(self, method: str, path: str, body: bytes | None = None) -> dict[str, Any]:
        deadline = time.monotonic() + self._timeout
        attempt = 0
        while True:
            wait = random.uniform(0.5, 1.0) * min(LONGEST_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2**attempt)
            try:
                response, content = self._try(method, path, body, deadline)
            except (exceptions.NewConnectionError, exceptions.ProtocolError) as error:
                failure = InputError(f"{self.address}: no answer ({one_line(error, 300)}); is the server running?")
                failure.__cause__ = error
            except exceptions.TimeoutError as error:
                raise InputError(f"{self.address}: no answer in {self._timeout:g} s") from error
            except exceptions.HTTPError as error:
                raise InputError(f"{self.address}: the request failed ({one_line(error, 300)})") from error
            else:
                if response.status == 200:
                    return self._read(content)
                failure = self._refusal(response.status, content)
                if response.status not in RETRIED:
                    raise failure
                wait = max(wait, _retry_after(response))
            if attempt == self._retries or time.monotonic() + wait >= deadline:
                raise failure
            time.sleep(wait)
            attempt += 1

    def _try(
        self, method: str, path: str, body: bytes | None, deadline: float
    ) -> tuple[urllib3.BaseHTTPResponse, bytes]:
        timeout = urllib3.Timeout(total=max(deadline - time.monotonic(), 0.001))
        response = self._pool.urlopen(
            method, path, body, retries=False, redirect=False, timeout=timeout, preload_content=False
        )
        # urllib3's timeout limits the wait for each piece of a response, not for the whole.
        pieces = []
        while piece := response.read1(_PIECE_BYTES):
            pieces.append(piece)
            if time.monotonic() > deadline:
                response.close()
                raise exceptions.TimeoutError
        return response, b"".join(pieces)

    def _read(self, content: bytes) -> dict[str, Any]:
        try:
            answer = read_json(content)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise InputError(f"{self.address}: the answer is not a JSON object; is this TF Serving's REST API?")
        return answer

    def _refusal(self, status: int, content: bytes) -> InputError:
        text = content.decode("utf-8", "replace")
        try:
            answer = read_json(text.encode())  # an error may show bytes that are no UTF-8
            text = str(answer["error"]) if isinstance(answer, dict) and "error" in answer else text
        except (ValueError, RecursionError):
            pass
        return InputError(f"{self.address}: the server answers {status}: {one_line(text, 300) or 'nothing more'}")


def _retry_after(response: urllib3.BaseHTTPResponse) -> float:
    """Returns the response's Retry-After in seconds, or 0 without one."""
    try:
        return urllib3.Retry().get_retry_after(response) or 0.0
    except exceptions.InvalidHeader:
        return 0.0
