"""Kubeflow Pipelines' API: its address, its credentials, and its errors in one line."""

import contextlib
import dataclasses
import ipaddress
import json
import logging
import pathlib
import shlex
import warnings
from collections.abc import Iterator

import certifi
import kfp
import kfp_server_api
import urllib3
from kfp.client.set_volume_credentials import ServiceAccountTokenVolumeCredentials

from ctrpipe.common.errors import InputError, one_line


@dataclasses.dataclass(frozen=True)
class Host:
    """The address of Kubeflow Pipelines' API, with credentials.

    Args:
        url: The address.
        token: A bearer token.
        token_file: A file with a bearer token, read again for every request, because tokens are renewed. Takes
            precedence over `token`.
        namespace: The profile's namespace, for a multi-user Kubeflow.
        ca_cert: PEM file of the certificate authority of the host. None for a public authority.
    """

    url: str
    token: str | None = None
    token_file: pathlib.Path | None = None
    namespace: str | None = None
    ca_cert: pathlib.Path | None = None

    def get(self, path: str, retries: urllib3.Retry) -> urllib3.BaseHTTPResponse:
        """Sends a GET request, for paths that kfp's client does not support. Raises urllib3's HTTPError."""
        pool = urllib3.PoolManager(ca_certs=str(self.ca_cert or certifi.where()))
        return pool.request("GET", self.url.rstrip("/") + path, headers=self._headers(), timeout=30, retries=retries)

    def command(self, path: str) -> str:
        """Returns the shell command that prints a path's answer, without the token itself."""
        words = ["curl", "-s", *(["--cacert", shlex.quote(str(self.ca_cert))] if self.ca_cert else [])]
        if self.token_file:
            words += ["-H", f'"Authorization: Bearer $(cat {shlex.quote(str(self.token_file))})"']
        elif self.token:
            words += ["-H", '"Authorization: Bearer $KFP_TOKEN"']
        return " ".join([*words, shlex.quote(self.url.rstrip("/") + path)])

    def _headers(self) -> dict[str, str]:
        token = self.token_file.read_text().strip() if self.token_file else self.token
        return {"Authorization": f"Bearer {token}"} if token else {}


def connect(host: Host) -> kfp.Client:
    """Checks the address, the token and the namespace, and returns a client.

    Raises:
        InputError: the host does not respond, refuses the token, or needs a namespace.
    """
    warnings.filterwarnings("ignore", module="kfp")
    logging.getLogger("urllib3").setLevel(logging.ERROR)
    if not host.url.lower().startswith(("http://", "https://")):
        raise InputError(f"--host {host.url}: expected an address that begins with http:// or https://")
    address = urllib3.util.parse_url(host.url)
    if address.scheme == "http" and (host.token or host.token_file) and not _is_loopback(address.host or ""):
        raise InputError(f"--host {host.url}: a token would go over plain http; give an https address")
    for option, path in (("--ca-cert", host.ca_cert), ("--token-file", host.token_file)):
        if path and not path.is_file():
            raise InputError(f"{option} {path}: no such file")
    with as_input_errors(host):
        _check_health(host)
        client = kfp.Client(
            host=host.url,
            existing_token=None if host.token_file else host.token,
            credentials=ServiceAccountTokenVolumeCredentials(str(host.token_file)) if host.token_file else None,
            namespace=host.namespace or "kubeflow",
            ssl_ca_cert=str(host.ca_cert) if host.ca_cert else None,
        )
        client.list_experiments(page_size=1, namespace=host.namespace)
        return client


def _is_loopback(name: str) -> bool:
    """Returns whether an address is this machine's own, as with `kubectl port-forward`."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(name.strip("[]")).is_loopback
    return name == "localhost"


def _check_health(host: Host) -> None:
    """Checks the host's health. kfp's client does too, but reports any failure after 25 seconds without a reason."""
    busy = urllib3.Retry(2, redirect=False, status_forcelist=(502, 503, 504), backoff_factor=1.0, raise_on_status=False)
    answer = host.get("/apis/v2beta1/healthz", busy)
    if answer.status in (301, 302, 303, 307, 401, 403):  # a redirection leads to a login page
        raise kfp_server_api.ApiException(status=401)
    if answer.status != 200 or "json" not in answer.headers.get("Content-Type", ""):
        raise InputError(f"{host.url}: HTTP {answer.status}, which is not Kubeflow Pipelines; check --host")
    if answer.json().get("multi_user") and not host.namespace:
        raise InputError(f"{host.url}: this Kubeflow has several users; give your profile's namespace as --namespace")


@contextlib.contextmanager
def as_input_errors(host: Host, more: str = "") -> Iterator[None]:
    """Raises the errors of kfp's client and of urllib3 as InputErrors, with `more` at the end of the message."""
    try:
        yield
    except kfp_server_api.ApiException as error:
        if error.status in (401, 403):
            what = "refuses the token" if host.token or host.token_file else "wants a token"
            where = f"in {host.token_file}" if host.token_file else "in KFP_TOKEN, or as --token-file if it is renewed"
            raise InputError(f"{host.url}: {what} (HTTP {error.status}); give a valid one {where}{more}") from error
        raise InputError(f"{host.url}: HTTP {error.status}: {_reason(error)}{more}") from error
    except urllib3.exceptions.HTTPError as error:
        reason = error.reason if isinstance(error, urllib3.exceptions.MaxRetryError) else error
        if isinstance(reason, urllib3.exceptions.SSLError):
            raise InputError(
                f"{host.url}: {one_line(reason, 300)}; give the certificate of its authority as --ca-cert"
            ) from error
        raise InputError(f"{host.url}: no answer; is this the address of Kubeflow Pipelines?{more}") from error
    except ValueError as error:
        raise InputError(f"{host.url}: {one_line(error, 300)}{more}") from error


def _reason(error: kfp_server_api.ApiException) -> str:
    """Returns the API's error message, on one line."""
    try:
        answer = json.loads(error.body)
        text = str(answer.get("error") or answer.get("message") or error.reason)
    except (TypeError, ValueError, AttributeError):
        text = str(error.reason)
    return one_line(text, 300)
