"""A client of TF Serving's REST API."""

import contextlib
import json
import time
from typing import Any

import httpx

from transforms.errors import InputError

RETRIED = (429, 503)


class RestClient(contextlib.AbstractContextManager):
    """Keeps its connection, retries with back-off where the server is busy or out of reach.

    Args:
        url: http://HOST:PORT/v1/models/NAME, with /versions/N or /labels/L behind it or not.
        timeout: Seconds for one try.
        retries: Tries after the first one.
    """

    def __init__(self, url: str, timeout: float = 30.0, retries: int = 3):
        self.url = url.rstrip("/")
        self._retries = retries
        self._http = httpx.Client(timeout=timeout, trust_env=False)

    def __exit__(self, *error: object) -> None:
        self._http.close()

    def predict(self, columns: dict[str, list], signature_name: str = "serving_raw") -> Any:
        """Columnar predict; NaN travels as the token NaN. A dict of outputs, or the one output itself."""
        body = json.dumps({"signature_name": signature_name, "inputs": columns})
        answer = self._call("POST", ":predict", body)
        if "outputs" not in answer:
            raise InputError(f"{self.url}: the answer has no 'outputs'; is this TF Serving's REST API?")
        return answer["outputs"]

    def status(self) -> dict[str, Any]:
        return self._call("GET", "")

    def metadata(self) -> dict[str, Any]:
        return self._call("GET", "/metadata")

    def _call(self, method: str, suffix: str, body: str | None = None) -> dict[str, Any]:
        for attempt in range(self._retries + 1):
            try:
                response = self._http.request(method, self.url + suffix, content=body)
            except (httpx.ConnectError, httpx.ReadError, httpx.RemoteProtocolError) as error:
                if attempt == self._retries:
                    raise InputError(f"{self.url}: no answer ({error}); is the server running?") from error
            except httpx.TimeoutException as error:
                raise InputError(f"{self.url}: no answer in time") from error
            except (httpx.InvalidURL, httpx.UnsupportedProtocol, UnicodeError) as error:
                raise InputError(f"{self.url}: not a URL like http://127.0.0.1:8501/v1/models/ctr") from error
            except httpx.HTTPError as error:
                raise InputError(f"{self.url}: the request failed ({' '.join(str(error).split())})") from error
            else:
                if response.status_code not in RETRIED or attempt == self._retries:
                    return self._read(response)
            time.sleep(0.1 * 2**attempt)
        raise AssertionError("unreachable")

    def _read(self, response: httpx.Response) -> dict[str, Any]:
        try:
            answer = json.loads(response.text)
        except ValueError:
            answer = None
        if response.status_code == 200:
            if not isinstance(answer, dict):
                raise InputError(f"{self.url}: the answer is no JSON object; is this TF Serving's REST API?")
            return answer
        message = answer["error"] if isinstance(answer, dict) and "error" in answer else response.text
        shown = " ".join(str(message).split())[:300]
        raise InputError(f"{self.url}: the server answers {response.status_code}: {shown or 'nothing more'}")
