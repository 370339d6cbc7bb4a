"""Objects in stores, by URL: find, open, measure, read by ranges, and write.

| URL | store | credentials |
|---|---|---|
| `s3://BUCKET/KEY` | Amazon S3, or what speaks its protocol at AWS_ENDPOINT_URL | environment, profile, web identity |
| `gs://BUCKET/KEY` | Google Cloud Storage, or STORAGE_EMULATOR_HOST | application default credentials |
| `abfs://CONTAINER@ACCOUNT.dfs.core.windows.net/KEY` | Azure Storage | environment, managed identity |
| `hdfs://HOST:PORT/PATH` | Hadoop, with its Java client | the login, or a Kerberos ticket |
| `https://HOST/PATH` | a web server, for reading | none |
| `NAME://BUCKET/KEY` | the store NAME of an installed package (docs/hooks.md) | the package's |

pyarrow.fs, which is in the base anyway, speaks the protocols and finds the credentials. This module adds what it lacks:
retries with back-off, reading ahead by ranges in parallel, a tag that tells whether an object is still the same, and
errors of one line. This module does not handle local files: paths without a scheme, or with `file://`.
"""

import base64
import contextlib
import ctypes
import dataclasses
import datetime
import errno
import fnmatch
import functools
import glob
import hashlib
import io
import os
import pathlib
import random
import re
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import urllib.parse
import zipfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import IO, Any, NamedTuple, Protocol, TypeVar, cast

from ctrpipe.common import hooks
from ctrpipe.common.errors import InputError, one_line
from ctrpipe.common.files import by_number

SCHEMES = ("s3", "gs", "gcs", "abfs", "abfss", "hdfs", "http", "https")
_ANY_URL = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]+)://")
_FILE_URI = "file://"
_MAGIC = re.compile(r"[*?\[]")

BLOCK_BYTES = 4 << 20  # of one request of what is read in order
AHEAD = 4  # blocks that are requested at once
_FILES_AT_ONCE = 16  # that are opened or asked about at once
_HEAD_BYTES = 1 << 16  # the least that is asked for
_PART = ".ctrpipe-part"  # ends the name of a file of Hadoop that is not whole yet

# How long a request is repeated that a store answers with "slow down" or with an error of its own, or not at all.
RETRY_SECONDS = "CTRPIPE_STORE_RETRY_SECONDS"
_RETRY_SECONDS = 60.0
_FIRST_SECONDS = 5.0  # where the store has not answered this process before: its address is probably wrong
_FIRST_DELAY, _LAST_DELAY = 0.05, 5.0
_CONNECT_SECONDS, _SILENT_SECONDS = 5.0, 30.0
_CALL_SECONDS = 10.0  # of Hadoop's name node; a request has up to seven calls

_CREDENTIALS = {
    "s3": "AWS_PROFILE, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the role of this machine",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS, `gcloud auth application-default login`, or the workload's account",
    "abfs": "AZURE_STORAGE_KEY, AZURE_STORAGE_SAS_TOKEN, `az login`, or the workload's identity",
    "hdfs": "the Kerberos ticket",
    "http": "the server asks for credentials, which ctrpipe does not send: copy the file to a store or to this machine",
}
_OF_PACKAGE = "the settings of the package that has this store"
_ENDPOINTS = {
    "s3": "AWS_ENDPOINT_URL and AWS_REGION",
    "gs": "STORAGE_EMULATOR_HOST",
    "abfs": "the account's name in the URL",
    "hdfs": "HOST:PORT in the URL, or core-site.xml",
    "http": "the URL",
}
# What the libraries' messages say, which have no codes: the first that is found counts.
_NO_BUCKET = re.compile(r"NO_SUCH_BUCKET|NoSuchBucket|ContainerNotFound|specified container does not exist")
_EXPIRED = re.compile(r"ExpiredToken|EXPIRED_TOKEN|RequestExpired|token (is|has) expired|invalid_grant", re.I)
_UNKNOWN = re.compile(
    r"INVALID_ACCESS_KEY_ID|InvalidAccessKeyId|SIGNATURE_DOES_NOT_MATCH|SignatureDoesNotMatch|InvalidClientTokenId|"
    r"UNRECOGNIZED_CLIENT|InvalidToken|UNAUTHENTICATED|INVALID_SIGNATURE|AuthenticationFailed|MISSING_AUTHENTICATION|"
    r"HTTP status(?: code:?)? 401|Could not create a OAuth2 access token|failed to get token|"
    r"CredentialUnavailable|DefaultAzureCredential",
    re.I,
)
_DENIED = re.compile(
    r"AccessControlException|RemoteException: Permission denied|"
    r"ACCESS_DENIED|AccessDenied|PERMISSION_DENIED|AuthorizationPermissionMismatch|AuthorizationFailure|"
    r"HTTP status(?: code:?)? 403|\b403 Forbidden",
    re.I,
)
_READ = re.compile(r"during (?:Head|Get)Object operation")
_UNTRUSTED = re.compile(r"CERTIFICATE_VERIFY_FAILED")
_NO_TLS = re.compile(r"WRONG_VERSION_NUMBER|RECORD_LAYER_FAILURE")
_SKEWED = re.compile(r"RequestTimeTooSkewed|REQUEST_TIME_TOO_SKEWED")
_ELSEWHERE = re.compile(r"PermanentRedirect|HTTP status 301|AuthorizationHeaderMalformed|IllegalLocationConstraint")
_PASSING = re.compile(
    r"SLOW_DOWN|SlowDown|THROTTL|RequestLimitExceeded|TooManyRequests|SERVICE_UNAVAILABLE|ServiceUnavailable|"
    r"INTERNAL_FAILURE|InternalError|NETWORK_CONNECTION|REQUEST_TIMEOUT|HTTP status(?: code:?)? (?:5\d\d|429|408)|"
    r"curlCode|CURL error|UNAVAILABLE|RESOURCE_EXHAUSTED|DEADLINE_EXCEEDED|ServerBusy|OperationTimedOut|"
    r"timed? ?out|connection (?:was |is )?(?:reset|closed|aborted|refused)|Fail to get a new connection|"
    # pyarrow closes an object of Google's whose connection breaks. What Azure's says without a code is of a connection.
    r"EndOfChunk|Transport|ConnectException|ConnectTimeout|SocketTimeout|SafeModeException|StandbyException|"
    r"EOFException|Connection reset|NoRouteToHost|BlockMissing|No live nodes|could only be written to|"
    r"error_info=.*transient|cut short|operation on closed file|Azure Error: \[\]|"
    r"Hierarchical Namespace support on '[^']*' failed: ",
    re.I,
)
_NOT_REACHED = re.compile(
    r"curlCode: (?:6|7|28|35|60)\b|Could not (?:resolve|connect)|Failed to (?:resolve|establish)|Connection refused|"
    r"NewConnectionError|ConnectTimeoutException|SocketTimeoutException|NoRouteToHost|connect timeout="
)

_NO_SUCH_BUCKET = "no such bucket; check the name in the URL"

Result = TypeVar("Result")


class StoreError(InputError):
    """Raised if a store refuses a request for a reason that the user can fix."""


class UnreachableError(StoreError):
    """Raised if a store does not answer, or answers with transient errors only, until the retries end."""


# URLs ----------------------------------------------------------------------------------------------------------------


def is_url(path: str | os.PathLike[str]) -> bool:
    """Returns whether a path is a store's URL, and neither a local path nor `file://`."""
    scheme = scheme_of(path)
    return scheme in SCHEMES or (scheme != "" and scheme in hooks.names("stores"))


def scheme_of(path: str | os.PathLike[str]) -> str:
    """Returns the scheme of a URL in lower case; "" for a path."""
    match = _ANY_URL.match(str(path))
    return match[1].lower() if match else ""


def check_scheme(text: str) -> str:
    """Returns a path, with `file://` removed from a local one.

    Raises:
        InputError: the URL has an unsupported scheme, or contains credentials.
    """
    match = _ANY_URL.match(text)
    if match is None:
        return text
    if text.startswith(_FILE_URI):
        return str(local_path(text))
    if not is_url(text):
        named = ("s3", "gs", "abfs", "hdfs", "https", "file", *sorted(hooks.names("stores")))
        known = ", ".join(f"{name}://" for name in named)
        raise InputError(f"{_shown(text)}: {match[1]}:// is not a known store; use {known}, or a path")
    _place(text)
    return text


def local_path(text: str) -> pathlib.Path:
    """Returns the local path of a path or of a URI file://HOST/PATH.

    Ignores the host and does not percent-decode, like TensorFlow's file system (PosixFileSystem, io::ParseURI).
    """
    if not text.startswith(_FILE_URI):
        return pathlib.Path(text)
    _, slash, path = text.removeprefix(_FILE_URI).partition("/")
    return pathlib.Path(slash + path or "/")


def absolute(path: str) -> str:
    """Returns the absolute path of a file, with links resolved; a URL is unchanged."""
    return path if is_url(path) else str(pathlib.Path(path).resolve())


def name_of(path: str) -> str:
    """Returns the last name in a path or URL."""
    return path.rstrip("/").rpartition("/")[2]


def join(url: str, *names: str) -> str:
    """Returns the URL of an object below a URL."""
    return "/".join([url.rstrip("/"), *names])


@dataclasses.dataclass(frozen=True)
class _Place:
    """The parts of a URL: the scheme without variants, the host of the store, the bucket, and the key in it."""

    scheme: str
    host: str
    bucket: str
    key: str

    @property
    def path(self) -> str:
        """The path as pyarrow has it."""
        return f"{self.bucket}/{self.key}".strip("/") if self.bucket else f"/{self.key}"


def _place(url: str) -> _Place:
    """Splits a URL. A `?`, `*` or `#` belongs to the key.

    Raises:
        StoreError: the URL lacks a bucket, or has credentials in it.
    """
    named, _, rest = url.partition("://")
    scheme = {"gcs": "gs", "abfss": "abfs", "https": "http"}.get(named.lower(), named.lower())
    host, _, key = rest.partition("/")
    if scheme == "http":
        if "@" in host or re.search(r"[?&][\w-]*(?:signature|token|secret|sig|key)[\w-]*=", key, re.I):
            raise StoreError(
                f"{_shown(url)}: the URL has credentials in it, which a run would write into its files; use s3://, "
                "gs:// or abfs://, which find theirs, or download the file"
            )
        return _Place(scheme, f"{named.lower()}://{host}", "", key)
    if scheme == "hdfs":
        return _Place(scheme, host, "", key)
    bucket, account = host, ""
    if scheme == "abfs":
        bucket, _, account = host.partition("@")
    elif "@" in host:
        raise StoreError(
            f"{_shown(url)}: the URL has credentials in it, which a run would write into its files; give them by "
            f"{_CREDENTIALS.get(scheme, _OF_PACKAGE)}"
        )
    if not bucket:
        raise StoreError(f"{url}: the URL names no bucket; write {named}://BUCKET/KEY")
    return _Place(scheme, account, bucket, key)


def _shown(url: str) -> str:
    """Returns a URL without possible secrets."""
    return re.sub(r"(?<=://)[^/@]*@", "", url).split("?")[0]


# Requests that are repeated ------------------------------------------------------------------------------------------

_answered: set[tuple[str, str]] = set()


def _retry_seconds() -> float:
    text = os.environ.get(RETRY_SECONDS, "")
    try:
        return float(text) if text else _RETRY_SECONDS
    except ValueError as error:
        raise StoreError(f"{RETRY_SECONDS}={text}: not a number of seconds; correct or unset it") from error


def _asked(url: str, request: Callable[[], Result], is_short: bool = True) -> Result:
    """Returns the result of a request, which is repeated with growing pauses after a transient error.

    Args:
        url: The object.
        request: Asks the store.
        is_short: Whether a request that takes longer than _SILENT_SECONDS has failed.

    Raises:
        FileNotFoundError: there is no such object.
        StoreError: the store refuses the request, or does not answer.
    """
    place = _place(url)
    began, delay, tries = time.monotonic(), _FIRST_DELAY, 0
    while True:
        tries += 1
        try:
            with _HADOOP.quiet() if place.scheme == "hdfs" else contextlib.nullcontext():
                answer = _in_time(place, request) if is_short else request()
        except (OSError, ValueError, _library_error()) as error:
            if place.scheme == "hdfs":
                error = _HADOOP.explained(error)
            text = str(error)
            if not isinstance(error, FileNotFoundError) and not text.startswith(os.strerror(errno.ENOENT)):
                delay = _pause(url, place, error, began, delay, tries)
                continue
            _answered.add(_store(place))
            if _NO_BUCKET.search(str(error)):
                raise _error(url, place, error) from error
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), url) from error
        else:
            _answered.add(_store(place))
            return answer


def _in_time(place: _Place, call: Callable[[], Result]) -> Result:
    """Returns the result of a call of pyarrow. Azure's, which has no timeout, runs in a thread that is left to itself
    at the end of the time.

    Raises:
        OSError: Azure's call takes longer than _SILENT_SECONDS.
    """
    if place.scheme != "abfs":
        return call()
    answer: Future[Result] = Future()

    def run() -> None:
        try:
            answer.set_result(call())
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=run, name="azure", daemon=True).start()
    if not wait([answer], _SILENT_SECONDS).done:
        raise OSError(f"timed out: no answer in {_SILENT_SECONDS:g} s")
    return answer.result()


def _library_error() -> type[Exception]:
    import pyarrow as pa  # lazy, see _library

    return cast(type[Exception], pa.ArrowException)  # what pyarrow makes of an exception of a store's own library


def _pause(url: str, place: _Place, error: Exception, began: float, delay: float, tries: int) -> float:
    """Waits before a request is repeated. Returns the next wait.

    Raises:
        StoreError: the error is not transient, or the retries have ended.
    """
    text, limit = str(error), _retry_seconds()
    if not _PASSING.search(text) or _lasting(text):
        raise _error(url, place, error) from error
    if _store(place) not in _answered and _NOT_REACHED.search(text):
        limit = min(limit, _FIRST_SECONDS)
    if time.monotonic() - began + delay > limit:
        raise _away(url, place, error, tries) from error
    time.sleep(delay * random.uniform(0.5, 1.0))
    return min(2 * delay, _LAST_DELAY)


def _store(place: _Place) -> tuple[str, str]:
    return place.scheme, place.host or place.bucket


def _lasting(text: str) -> bool:
    lasting = (_NO_BUCKET, _EXPIRED, _UNKNOWN, _DENIED, _ELSEWHERE, _UNTRUSTED, _NO_TLS)
    return any(fault.search(text) for fault in lasting)


def _away(url: str, place: _Place, error: Exception, tries: int) -> UnreachableError:
    what = "does not answer" if _NOT_REACHED.search(str(error)) else f"still fails after {tries} tries"
    return UnreachableError(
        f"{url}: the store {what} ({_reason(str(error))}); try again later, or correct "
        f"{_ENDPOINTS.get(place.scheme, _OF_PACKAGE)}"
    )


def _error(url: str, place: _Place, error: Exception) -> StoreError:
    """Returns the error for a request that the store refuses."""
    text = str(error)
    if "No response body" in text:  # an answer to HEAD has no reason
        why = _why_refused(place)
        if why and not _DENIED.search(why):  # a store may allow reading and no listing
            text = why
    credentials = _CREDENTIALS.get(place.scheme, _OF_PACKAGE)
    if _NO_BUCKET.search(text):
        return StoreError(f"{url}: {_NO_SUCH_BUCKET}")
    if _EXPIRED.search(text):
        return StoreError(f"{url}: the credentials have expired; renew them: {credentials}")
    if _SKEWED.search(text):
        return StoreError(f"{url}: this machine's clock differs by minutes from the store's; set this machine's clock")
    if _UNKNOWN.search(text):
        return StoreError(f"{url}: the store does not accept the credentials; check {credentials}")
    if _DENIED.search(text) and _READ.search(text):
        return StoreError(
            f"{url}: permission denied, or no such object: a store says the same of both where the bucket may not be "
            f"listed; check the URL, the bucket's policy, and {credentials}"
        )
    if _DENIED.search(text):
        return StoreError(f"{url}: permission denied; check the bucket's policy, and {credentials}")
    if _ELSEWHERE.search(text):
        return StoreError(f"{url}: the bucket is in another region; set AWS_REGION to the bucket's")
    if _UNTRUSTED.search(text):
        return StoreError(
            f"{url}: the server's certificate is not trusted ({_reason(text)}); set SSL_CERT_FILE to the certificates "
            "of its authority, or correct the URL"
        )
    if _NO_TLS.search(text):
        return StoreError(f"{url}: the server does not speak TLS; write http:// in place of https://")
    endpoint = _ENDPOINTS.get(place.scheme, _OF_PACKAGE)
    return StoreError(f"{url}: the store refuses ({_reason(text)}); check the URL and {endpoint}")


def _why_refused(place: _Place) -> str:
    try:
        fs = _library()
        _filesystem(place).get_file_info(fs.FileSelector(place.bucket))
    except (OSError, ValueError) as error:
        return str(error)
    return ""


def _reason(text: str) -> str:
    text = re.sub(r"\s*\(Request ID:[^)]*\)", "", text)
    if match := re.search(r"AWS Error (.*)", text, re.S):
        text = match[1]
    return one_line(text, 160)


# The stores ----------------------------------------------------------------------------------------------------------


class _Object(Protocol):
    """An object that is open for reading. `read_at` may be called by several threads at once."""

    size: int
    tag: str

    def read_at(self, start: int, length: int) -> bytes: ...


def _library() -> Any:
    import pyarrow.fs  # lazy: what reads files of this machine needs none of it

    return pyarrow.fs


def _filesystem(place: _Place) -> Any:
    """Returns the client of a bucket's store. A forked process creates its own client."""
    return _client(os.getpid(), place.scheme, place.host, place.bucket, _settings(place.scheme))


def _settings(scheme: str) -> tuple[str, ...]:
    """Returns a store's endpoint and region as set by the environment."""
    names = {
        "s3": (("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"), ("AWS_REGION", "AWS_DEFAULT_REGION")),
        "gs": (("STORAGE_EMULATOR_HOST",),),
        "abfs": (
            ("AZURE_STORAGE_ENDPOINT",),
            ("AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_ACCOUNT_NAME"),
            ("AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCOUNT_KEY"),
            ("AZURE_STORAGE_SAS_TOKEN",),
        ),
    }.get(scheme, ())
    return tuple(next((os.environ[name] for name in group if os.environ.get(name)), "") for group in names)


def endpoint_of(scheme: str) -> str:
    """Returns a store's endpoint that the environment sets for a scheme; "" for the provider's own."""
    return next(iter(_settings(scheme)), "") if scheme in ("s3", "gs", "gcs", "abfs", "abfss") else ""


def has_client() -> bool:
    """Returns whether this process has a client of a store. Its threads, or its Java, do not survive a fork."""
    return _client.cache_info().currsize > 0


@functools.lru_cache(maxsize=64)
def _client(pid: int, scheme: str, host: str, bucket: str, settings: tuple[str, ...]) -> Any:
    fs = _library()
    if scheme == "s3":
        return _s3(fs, bucket, *settings)
    if scheme == "gs":
        return _gs(fs, *settings)
    if scheme == "abfs":
        return _abfs(fs, host, *settings)
    return _hdfs(fs, host) if scheme == "hdfs" else _of_package(fs, scheme, bucket)


def _of_package(fs: Any, scheme: str, bucket: str) -> Any:
    """Returns the file system of a store of an installed package.

    Raises:
        InputError: its code fails, or does not return a file system.
    """
    store = hooks.load("stores", scheme)
    with hooks.failures("stores", scheme):
        filesystem = store(bucket)
    if not isinstance(filesystem, fs.FileSystem):
        raise InputError(
            f"the store {scheme} returned {type(filesystem).__name__}, not a file system; return one of "
            "pyarrow.fs, such as PyFileSystem(FSSpecHandler(...))"
        )
    return filesystem


def _s3(fs: Any, bucket: str, endpoint: str, region: str) -> Any:
    options: dict[str, Any] = {
        "retry_strategy": fs.AwsStandardS3RetryStrategy(max_attempts=4),  # of a part; `_asked` repeats the whole
        "connect_timeout": _CONNECT_SECONDS,
        "request_timeout": _SILENT_SECONDS,
    }
    if endpoint:
        options |= _authority(endpoint, "endpoint_override", "scheme")
        region = region or "us-east-1"
    elif not region:
        with contextlib.suppress(OSError, ValueError):  # the first request says what is wrong
            region = fs.resolve_s3_region(bucket)
    if region:
        options["region"] = region
    if os.environ.get("AWS_NO_SIGN_REQUEST", "").lower() in ("1", "true", "yes"):
        options["anonymous"] = True
    return fs.S3FileSystem(**options)


def _gs(fs: Any, emulator: str) -> Any:
    options: dict[str, Any] = {"retry_time_limit": datetime.timedelta(milliseconds=1)}  # `_asked` repeats
    if emulator:
        options |= _authority(emulator, "endpoint_override", "scheme") | {"anonymous": True}
    return fs.GcsFileSystem(**options)


def _abfs(fs: Any, host: str, endpoint: str, account: str, key: str, sas: str) -> Any:
    if not hasattr(fs, "AzureFileSystem"):
        raise StoreError("abfs://: this pyarrow does not support Azure; pip install 'pyarrow>=20'")
    name = host.partition(".")[0] or account
    if not name:
        raise StoreError(
            "abfs://: the URL names no account; write abfs://CONTAINER@ACCOUNT.dfs.core.windows.net/KEY, or set "
            "AZURE_STORAGE_ACCOUNT"
        )
    options: dict[str, Any] = {}
    if endpoint:
        for kind in ("blob", "dfs"):
            options |= _authority(endpoint, f"{kind}_storage_authority", f"{kind}_storage_scheme")
    if key:
        options["account_key"] = key
    elif sas:
        options["sas_token"] = sas
    return fs.AzureFileSystem(name, **options)


def _hdfs(fs: Any, host: str) -> Any:
    """Returns the client of a Hadoop file system, by Hadoop's libhdfs and Java in this process.

    Raises:
        StoreError: this machine lacks a part of Hadoop's client.
    """
    _HADOOP.find(host)
    name, _, port = host.partition(":")
    try:
        first = fs.HadoopFileSystem(name or "default", int(port or 0), extra_conf=_hadoop_settings(_FIRST_SECONDS))
        client = fs.HadoopFileSystem(name or "default", int(port or 0), extra_conf=_hadoop_settings(_CALL_SECONDS))
    except (OSError, ValueError) as error:
        if name and not _is_host(name):
            raise StoreError(f"hdfs://{host}: no such host, nor a name service of hdfs-site.xml; correct it") from error
        raise StoreError(
            f"hdfs://{host}: Hadoop's client cannot be used ({one_line(error, 160)}); install Java and Hadoop, and set "
            "JAVA_HOME, HADOOP_HOME (or ARROW_LIBHDFS_DIR, the folder of libhdfs.so) and CLASSPATH (`hadoop classpath "
            "--glob`)"
        ) from error
    _check_answers(fs, first)
    return client


def _check_answers(fs: Any, client: Any) -> None:
    """Raises OSError if a name node accepts a connection but does not answer. Another error is an answer."""
    try:
        client.get_file_info(fs.FileSelector("/"))
    except OSError as error:
        explained = _HADOOP.explained(error)
        if _NOT_REACHED.search(str(explained)):
            raise explained from error


def _is_host(name: str) -> bool:
    try:
        return bool(socket.getaddrinfo(name, None))
    except OSError:
        return False


def _hadoop_settings(call_seconds: float) -> dict[str, str]:
    """Returns settings of Hadoop's client, which does not wait, because `_asked` repeats.

    pyarrow shares no client of Java: the end of one would close it for all.

    Args:
        call_seconds: The time in which the name node answers a call. Opening a file takes up to seven calls.
    """
    return {
        "fs.hdfs.impl.disable.cache": "true",
        "ipc.client.connect.timeout": f"{_CONNECT_SECONDS * 1000:.0f}",
        "ipc.client.connect.max.retries": "1",
        "ipc.client.connect.max.retries.on.timeouts": "0",
        "ipc.client.rpc-timeout.ms": f"{call_seconds * 1000:.0f}",
        "dfs.client.socket-timeout": f"{_SILENT_SECONDS * 1000:.0f}",
        "dfs.datanode.socket.write.timeout": f"{_SILENT_SECONDS * 1000:.0f}",
        "dfs.client.retry.window.base": "500",
    }


class _Hadoop:
    """Hadoop's client in this process: libhdfs, and with it Java."""

    def __init__(self) -> None:
        self._process = 0  # that has Java
        self._lock, self._requests = threading.Lock(), 0
        self._streams: tuple[Any, int | None, int | None] | None = None

    def find(self, host: str) -> None:
        """Has the environment name Java and Hadoop's jars, and Java leave the signals to Python.

        Raises:
            StoreError: this machine has no Hadoop, as far as the environment tells.
        """
        if self._process not in (0, os.getpid()):
            raise StoreError(
                f"hdfs://{host}: this process is a fork of one that has read from Hadoop, and Java does not survive a "
                'fork; start processes by multiprocessing\'s "spawn" or "forkserver"'
            )
        options = os.environ.get("LIBHDFS_OPTS", "")
        if "-Xrs" not in options.split():  # or Java ends the process at an interrupt
            os.environ["LIBHDFS_OPTS"] = f"{options} -Xrs".strip()
        java = shutil.which("java")
        if java and not os.environ.get("JAVA_HOME"):  # where pyarrow looks for libjvm.so
            os.environ["JAVA_HOME"] = str(pathlib.Path(java).resolve().parents[1])
        home = os.environ.get("HADOOP_HOME")
        command = shutil.which("hadoop", path=os.path.join(home, "bin") if home else None)
        if command is not None and not os.environ.get("CLASSPATH"):
            answer = subprocess.run([command, "classpath", "--glob"], capture_output=True, text=True)
            os.environ["CLASSPATH"] = answer.stdout.strip()
        if not os.environ.get("CLASSPATH"):
            raise StoreError(
                f"hdfs://{host}: Hadoop's client is not found; install Java and Hadoop, and set HADOOP_HOME, or "
                "CLASSPATH to Hadoop's jars and ARROW_LIBHDFS_DIR to the folder of libhdfs.so"
            )
        _check_jars(host, os.environ["CLASSPATH"])
        self._process = os.getpid()

    @contextlib.contextmanager
    def quiet(self) -> Iterator[None]:
        """Has libhdfs print no stack traces, which it writes to C's stderr. Python's is another, of the same file."""
        with self._lock:
            self._requests += 1
            if self._requests == 1:
                self._turn(quiet=True)
        try:
            yield
        finally:
            with self._lock:
                self._requests -= 1
                if self._requests == 0:
                    self._turn(quiet=False)

    def _turn(self, quiet: bool) -> None:
        if self._streams is None:
            library = ctypes.CDLL(None)
            try:
                variable = ctypes.c_void_p.in_dll(library, "stderr")
            except ValueError:  # another C library than glibc
                return
            library.fopen.restype = ctypes.c_void_p
            self._streams = variable, variable.value, library.fopen(os.devnull.encode(), b"w")
        variable, usual, silent = self._streams
        variable.value = silent if quiet else usual

    @staticmethod
    def explained(error: Exception) -> Exception:
        """Returns an error of this thread's request with Java's reason. pyarrow gives only a number."""
        if isinstance(error, FileNotFoundError) or not re.search(r"\[errno \d+\]|failed$", str(error)):
            return error
        native = os.path.join(os.environ.get("HADOOP_HOME", ""), "lib", "native")
        for folder in (os.environ.get("ARROW_LIBHDFS_DIR", ""), native, ""):
            with contextlib.suppress(OSError, AttributeError):
                library = ctypes.CDLL(os.path.join(folder, "libhdfs.so"), mode=os.RTLD_NOLOAD | os.RTLD_NOW)
                library.hdfsGetLastExceptionRootCause.restype = ctypes.c_char_p
                cause = (library.hdfsGetLastExceptionRootCause() or b"").decode(errors="replace")
                return OSError(cause.splitlines()[0]) if cause else error
        return error


def _check_jars(host: str, class_path: str) -> None:
    """Raises StoreError if Hadoop is not among the jars, because libhdfs ends the process then."""
    named = [path for path in class_path.split(os.pathsep) if path]
    jars = [jar for path in named for jar in (glob.glob(f"{path}.jar") if path.endswith("*") else [path])]
    jars = sorted(filter(os.path.isfile, jars), key=lambda jar: "hadoop-c" not in os.path.basename(jar))
    for jar in jars:
        with contextlib.suppress(OSError, zipfile.BadZipFile), zipfile.ZipFile(jar) as archive:
            if "org/apache/hadoop/conf/Configuration.class" in archive.NameToInfo:
                return
    raise StoreError(f"hdfs://{host}: CLASSPATH names no jar of Hadoop's client; set it by `hadoop classpath --glob`")


_HADOOP = _Hadoop()


def _authority(endpoint: str, authority: str, scheme: str) -> dict[str, str]:
    parts = urllib.parse.urlsplit(endpoint if "://" in endpoint else f"http://{endpoint}")
    return {authority: parts.netloc, scheme: parts.scheme}


class _ArrowObject:
    """An object that pyarrow.fs reads."""

    def __init__(self, place: _Place):
        self._place = place
        self._file = _filesystem(place).open_input_file(place.path)
        said = {_text(name).lower(): _text(value) for name, value in (self._file.metadata() or {}).items()}
        # pyarrow's size() asks Google once more, and holds Python's lock meanwhile.
        size = said.get("size") or said.get("content-length") or ""
        self.size = int(size) if size.isdecimal() else int(self._file.size())
        self.tag = next((said[name] for name in ("generation", "etag") if said.get(name)), "")
        if not self.tag:  # Hadoop has none: the time of the last change
            [info] = _filesystem(place).get_file_info([place.path])
            self.tag = str(info.mtime_ns)

    def read_at(self, start: int, length: int) -> bytes:
        if self._file.closed:  # by a connection that broke
            self._file = _filesystem(self._place).open_input_file(self._place.path)
        return cast(bytes, self._file.read_at(length, start))


def _info(place: _Place) -> Any:
    """Returns what a store says of a path."""
    client = _filesystem(place)
    [info] = client.get_file_info([place.path])
    if place.scheme == "hdfs" and info.type.name == "NotFound":  # which pyarrow says of a Hadoop that is away, too
        client.get_file_info(_library().FileSelector("/"))
    return info


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


class _WebFile:
    """A file of a web server. A server without range requests sends the whole file, into a temporary file."""

    def __init__(self, place: _Place):
        self._url = f"{place.host}/{place.key}"
        answer = self._get("bytes=0-0")
        with contextlib.closing(answer):
            total = answer.headers.get("Content-Range", "").rpartition("/")[2]
            if answer.status == 206 and total.isdecimal():
                self.size = int(total)
            elif answer.status == 200:
                self._whole = self._saved(answer)
                self.size = self._whole.seek(0, os.SEEK_END)
            elif answer.status == 416:
                self.size = 0
            else:
                raise _web_error(answer.status)
        headers = answer.headers
        self.tag = headers.get("ETag") or headers.get("Last-Modified") or str(self.size)

    _whole: IO[bytes] | None = None

    def read_at(self, start: int, length: int) -> bytes:
        if self._whole is not None:
            return os.pread(self._whole.fileno(), length, start)
        import urllib3  # lazy, see _pool

        with contextlib.closing(self._get(f"bytes={start}-{start + length - 1}")) as answer:
            if answer.status != 206:
                raise _web_error(answer.status)
            try:
                return cast(bytes, answer.read())
            except urllib3.exceptions.HTTPError as error:
                raise _broken_connection(error) from error

    def _get(self, bounds: str) -> Any:
        import urllib3  # lazy, see _pool

        try:
            return _pool(os.getpid()).request(
                "GET",
                self._url,
                headers={"Accept-Encoding": "identity", "Range": bounds},
                preload_content=False,
                retries=urllib3.Retry(total=None, connect=0, read=0, redirect=5, status=0, other=0),
                timeout=urllib3.Timeout(connect=_CONNECT_SECONDS, read=_SILENT_SECONDS),
            )
        except urllib3.exceptions.HTTPError as error:
            raise _broken_connection(error) from error

    @staticmethod
    def _saved(answer: Any) -> IO[bytes]:
        import urllib3  # lazy, see _pool

        file = cast(IO[bytes], tempfile.TemporaryFile())
        expected, written = answer.headers.get("Content-Length"), 0
        try:
            for piece in answer.stream(1 << 20):
                written += file.write(piece)
        except urllib3.exceptions.HTTPError as error:
            raise _broken_connection(error) from error
        if expected is not None and written != int(expected):
            raise OSError("Transport: the answer is cut short")
        return file


def _broken_connection(error: Exception) -> OSError:
    """Returns an error of urllib3 with the reason alone, without the pool and the number of tries around it."""
    return OSError(f"Transport: {getattr(error, 'reason', None) or error}")


def _web_error(status: int) -> OSError:
    if status in (404, 410):
        return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    return OSError(f"HTTP status {status}")


@functools.lru_cache(maxsize=1)
def _pool(pid: int) -> Any:
    import urllib3  # lazy: takes 0.1 s, and files of this machine do not need it

    return urllib3.PoolManager(maxsize=2 * AHEAD)


def _opened(url: str) -> _Object:
    place = _place(url)
    return _asked(url, lambda: _WebFile(place) if place.scheme == "http" else _ArrowObject(place))


# Read ----------------------------------------------------------------------------------------------------------------


def state_of(url: str) -> tuple[int, str]:
    """Returns an object's size in bytes, and its tag: the generation, the ETag, or the time of its last change.

    Raises:
        FileNotFoundError: there is no such object.
        StoreError: the store refuses the request, or does not answer.
    """
    opened = _opened(url)
    return opened.size, opened.tag


def open_read(url: str, start: int | None = None, stop: int | None = None) -> IO[bytes]:
    """Opens an object for reading. Sequential reads are prefetched in parallel ranges.

    Args:
        url: The object.
        start: The position at which a sequential read begins; None to detect it.
        stop: The position at which prefetching ends; None for the end of the object.

    Raises:
        FileNotFoundError: there is no such object.
        StoreError: the store refuses the request, or does not answer.
    """
    return cast(IO[bytes], ObjectFile(url, _opened(url), start, stop))


def read_bytes(url: str) -> bytes:
    """Returns the contents of an object. Raises like `open_read`."""
    with open_read(url) as file:
        return file.read()


class Seen(NamedTuple):
    """A store's description of an object: its size in bytes, its tag as in `state_of`, and its last change in ns, or
    0.
    """

    size: int
    tag: str
    changed_ns: int = 0


def read_small(url: str, most: int) -> tuple[Seen, bytes | None]:
    """Returns the description and the contents of an object, in two requests; contents None above `most` bytes.

    Raises like `open_read`.
    """
    place = _place(url)
    if place.scheme == "gs" and (whole := _asked(url, lambda: _streamed(place, most))):
        return whole
    opened = _opened(url)
    seen = Seen(opened.size, opened.tag)
    if opened.size > most:
        return seen, None
    with ObjectFile(url, opened) as file:
        return seen, file.read()


def _streamed(place: _Place, most: int) -> tuple[Seen, bytes | None] | None:
    """Reads a Google Cloud Storage object whole, because ranges need one more request. None if its version changed
    meanwhile.

    The description follows the contents, and the contents' hash shows that both are of one version.
    """
    with _filesystem(place).open_input_stream(place.path, compression=None) as stream:
        said = {_text(name): _text(value) for name, value in stream.metadata().items()}
        seen = Seen(int(said["size"]), said["generation"], _nanoseconds(said.get("updated", "")))
        if seen.size > most:
            return seen, None
        contents = stream.read()
    md5 = base64.b64encode(hashlib.md5(contents, usedforsecurity=False).digest()).decode()
    return (seen, contents) if md5 == said.get("md5Hash") else None


def _nanoseconds(text: str) -> int:
    try:
        passed = datetime.datetime.fromisoformat(text) - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    except (ValueError, TypeError):
        return 0
    return passed // datetime.timedelta(microseconds=1) * 1000


def is_still(url: str, seen: Seen) -> bool:
    """Returns whether an object is unchanged, with one request if it is. Raises as `state_of`."""
    place = _place(url)
    if seen.changed_ns:
        info = _asked(url, lambda: _info(place))
        if (info.size, info.mtime_ns) == (seen.size, seen.changed_ns):
            return True
    return state_of(url) == (seen.size, seen.tag)


class ObjectFile(io.RawIOBase):
    """An object as a file. `read(n)` returns n bytes, or fewer at the end of the object. Not thread-safe."""

    def __init__(self, url: str, source: _Object, start: int | None = None, stop: int | None = None):
        self._url, self._source = url, source
        self._stop = source.size if stop is None else min(stop, source.size)
        self._at = 0
        self._in_order = -1 if start is None else start  # a read from here is one in order
        self._origin = 0  # of the blocks
        self._blocks: dict[int, Future[bytes]] = {}
        self._threads: ThreadPoolExecutor | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._source.size}[whence]
        self._at = max(base + offset, 0)
        return self._at

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)

    def readall(self) -> bytes:
        return self.read(-1)

    def read(self, size: int | None = -1) -> bytes:
        left = max(self._source.size - self._at, 0)
        length = left if size is None or size < 0 else min(size, left)
        if not length:
            return b""
        start, stop = self._at, self._at + length
        if self._is_ahead(start):
            data = self._from_blocks(start, stop)
        elif start == self._in_order:
            self._origin = start
            self._blocks.clear()
            data = self._from_blocks(start, stop)
        else:
            bounds = [(at, min(at + BLOCK_BYTES, stop)) for at in range(start, stop, BLOCK_BYTES)]
            if len(bounds) == 1:
                data = self._asked_for(*bounds[0])
            else:
                data = b"".join(self._pool().map(lambda bound: self._asked_for(*bound), bounds))
        self._at = self._in_order = stop
        return data

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._threads = None
        self._blocks.clear()
        super().close()

    def _pool(self) -> ThreadPoolExecutor:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(AHEAD, "store")
        return self._threads

    def _asked_for(self, start: int, stop: int) -> bytes:
        def request() -> bytes:
            data = self._source.read_at(start, stop - start)
            if len(data) != stop - start:
                raise OSError(f"cut short: {len(data)} of {stop - start} bytes")
            return data

        return _asked(self._url, request)

    def _is_ahead(self, start: int) -> bool:
        """Returns whether the range at a position is being prefetched."""
        return start >= self._origin and (start - self._origin) // BLOCK_BYTES in self._blocks

    def _from_blocks(self, start: int, stop: int) -> bytes:
        """Reads bytes from blocks. Requests the next AHEAD blocks, and drops the earlier ones."""
        first, last = (start - self._origin) // BLOCK_BYTES, (stop - 1 - self._origin) // BLOCK_BYTES
        for index in [index for index in self._blocks if index < first]:
            del self._blocks[index]
        pieces = []
        for index in range(first, last + 1):
            for ahead in range(index, index + AHEAD):
                self._ask(ahead, needed=ahead <= last)
            begins = self._origin + index * BLOCK_BYTES
            block = self._blocks[index].result()
            pieces.append(block[max(start - begins, 0) : stop - begins])  # a whole block is not copied
            if index < last:
                del self._blocks[index]
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _ask(self, index: int, needed: bool) -> None:
        begins = self._origin + index * BLOCK_BYTES
        if index in self._blocks or begins >= (self._source.size if needed else self._stop):
            return
        self._blocks[index] = self._pool().submit(self._asked_for, begins, min(begins + BLOCK_BYTES, self._source.size))


# Find ----------------------------------------------------------------------------------------------------------------


def is_file(url: str) -> bool:
    """Returns whether an object exists. Raises StoreError if the store refuses the request."""
    place = _place(url)
    if place.scheme == "http":
        try:
            state_of(url)
        except FileNotFoundError:
            return False
        return True
    return _kind(url, place) == "File"


def is_folder(url: str) -> bool:
    """Returns whether there are objects below a URL. Raises StoreError if the store refuses the request."""
    place = _place(url)
    return place.scheme != "http" and _kind(url, place) == "Directory"


def _kind(url: str, place: _Place) -> str:
    if not place.path or url.endswith("/"):
        return "Directory" if next(iter(objects_below(url, recursive=False)), None) else ""
    return str(_asked(url, lambda: _info(place)).type.name)


def check_bucket(url: str) -> None:
    """Raises StoreError if a URL's bucket does not exist, or the store refuses the request."""
    place = _place(url)
    if place.bucket:
        [info] = _asked(url, lambda: _filesystem(place).get_file_info([place.bucket]))
        if info.type.name == "NotFound":
            raise StoreError(f"{url}: {_NO_SUCH_BUCKET}")


def objects_below(url: str, recursive: bool = True) -> Iterator[tuple[str, int | None]]:
    """Yields the URL of each object below a URL with its size, and, if not recursive, the URL of each folder with None.

    Raises:
        StoreError: there is no such bucket, or the store refuses the request.
    """
    place = _place(url)
    if place.scheme == "http":
        raise StoreError(f"{_shown(url)}: a web server cannot list files; name each file")
    fs = _library()
    # Of Google's folders pyarrow lists only those that are objects themselves.
    selector = fs.FileSelector(place.path, recursive=recursive or place.scheme == "gs")
    root = url.rstrip("/") if place.key else url.partition("://")[0] + "://" + url.partition("://")[2].partition("/")[0]
    beginning = len(place.path.rstrip("/")) + 1
    folders = set()
    try:
        infos = _asked(url, lambda: _filesystem(place).get_file_info(selector), is_short=False)
    except FileNotFoundError:
        check_bucket(url)
        return
    for info in infos:
        name, is_file = info.path[beginning:], info.type.name == "File"
        if place.scheme == "hdfs" and is_file and name.endswith(_PART):
            continue
        if not recursive:
            name, below, _ = name.partition("/")
            is_file = is_file and not below
        if name and is_file:
            yield f"{root}/{name}", info.size
        elif name and not recursive and name not in folders:
            folders.add(name)
            yield f"{root}/{name}", None


def in_parallel(function: Callable[[str], Result], paths: Sequence[str]) -> list[Result]:
    """Applies a function to each path, and returns the results in order.

    With a URL among the paths, several run at once: a small object takes two dozen requests, which mostly wait.
    """
    if not any(is_url(path) for path in paths):
        return [function(path) for path in paths]
    with ThreadPoolExecutor(_FILES_AT_ONCE, "files") as threads:
        return list(threads.map(function, paths))


def matching(pattern: str) -> list[str]:
    """Returns the objects and folders that match a glob. See `listed`."""
    return [url for url, _ in listed(pattern)]


def listed(pattern: str) -> list[tuple[str, bool]]:
    """Returns the objects and folders that match a glob, in the order of `by_number`, with whether each is an object.

    As in a shell, a name that begins with "." needs a pattern that does.

    Raises:
        StoreError: there is no such bucket, or the store refuses the request.
    """
    reached = [(pattern.split("://")[0] + "://" + pattern.split("://")[1].partition("/")[0], False)]
    names = [name for name in _place(pattern).key.split("/") if name]
    for index, name in enumerate(names):
        is_last = index + 1 == len(names)
        if name == "**":
            rest = names[index:]
            below = [u for root, _ in reached for u, _ in objects_below(root) if _matches(u[len(root) + 1 :], rest)]
            return [(url, True) for url in sorted(dict.fromkeys(below), key=by_number)]
        if not _MAGIC.search(name):
            reached = [(join(url, name), False) for url, _ in reached]
            if is_last:
                kinds = [(url, is_file(url)) for url, _ in reached]
                reached = [(url, is_object) for url, is_object in kinds if is_object or is_folder(url)]
            continue
        reached = [
            (url, size is not None)
            for root, _ in reached
            for url, size in objects_below(root, recursive=False)
            if (is_last or size is None) and _matches(name_of(url), [name])
        ]
    return sorted(reached, key=lambda each: by_number(each[0]))


def files_below(url: str, pattern: str = "**/*") -> list[str]:
    """Returns the objects below a URL that match a glob, in the order of `by_number`.

    Omits objects with a name or a folder below the URL that begins with "." or "_".
    """
    root = url.rstrip("/")
    urls = [
        each
        for each, _ in objects_below(root)
        if not is_hidden((below := each[len(root) + 1 :]).split("/")) and _matches(below, pattern.split("/"))
    ]
    return sorted(urls, key=by_number)


def is_hidden(parts: Sequence[str]) -> bool:
    """Returns whether a path below a log's folder is hidden: a part begins with `.`, or with `_` unless it is a
    partition's.
    """
    return any(part.startswith(".") or (part.startswith("_") and "=" not in part) for part in parts)


def _matches(name: str, parts: list[str]) -> bool:
    return _match_names(name.split("/"), parts)


def _match_names(names: list[str], parts: list[str]) -> bool:
    if not parts:
        return not names
    if parts[0] == "**":
        return _match_names(names, parts[1:]) or (bool(names) and _match_names(names[1:], parts))
    if not names or (names[0].startswith(".") and not parts[0].startswith(".")):
        return False
    return fnmatch.fnmatchcase(names[0], parts[0]) and _match_names(names[1:], parts[1:])


# Write ---------------------------------------------------------------------------------------------------------------


def write_file(url: str, path: pathlib.Path) -> None:
    """Uploads a local file. The object appears complete.

    Raises:
        StoreError: the store refuses the request, or does not answer.
    """
    size = path.stat().st_size

    def write() -> None:
        with path.open("rb") as source:
            _write(url, lambda: source.read(BLOCK_BYTES), size)

    _asked_to_write(url, write)


def write_bytes(url: str, contents: bytes, whole: bool = True) -> None:
    """Writes an object. Raises like `write_file`.

    Args:
        url: The object.
        contents: What it holds.
        whole: In Hadoop, whether readers never see a part of the object. A replaced one is then absent for a moment;
            otherwise it is never absent, but may be read in part.
    """

    def write() -> None:
        pieces = iter((contents, b""))
        _write(url, lambda: next(pieces), len(contents), whole)

    _asked_to_write(url, write)


def _asked_to_write(url: str, write: Callable[[], None]) -> None:
    """Writes with the retries of `_asked`. A not-found error while writing means that the bucket is missing."""
    try:
        _asked(url, write, is_short=False)
    except FileNotFoundError as error:
        raise StoreError(f"{url}: {_NO_SUCH_BUCKET}") from error


def _write(url: str, piece: Callable[[], bytes], size: int, whole: bool = True) -> None:
    place = _place(url)
    if place.scheme == "http":
        raise StoreError(f"{_shown(url)}: a web server is read-only; write to s3://, gs://, abfs:// or a path")
    client = _filesystem(place)
    folder, _, name = place.path.rpartition("/")
    if folder and (place.scheme == "hdfs" or place.scheme not in SCHEMES):
        client.create_dir(folder)
    # Hadoop shows a file while it is written.
    path = f"{folder}/.{name}{_PART}" if place.scheme == "hdfs" and whole else place.path
    _save(place, client, path, piece)
    [info] = _in_time(place, lambda: client.get_file_info([path]))
    if info.size != size:
        raise OSError(f"cut short: {info.size} of {size} bytes were written")
    if path != place.path:
        _rename(client, path, place.path)


def _save(place: _Place, client: Any, path: str, piece: Callable[[], bytes]) -> None:
    # Otherwise pyarrow compresses what has a name such as log.csv.gz.
    opened = functools.partial(client.open_output_stream, path, compression=None)
    if place.scheme != "abfs":
        with opened() as stream:
            while data := piece():
                stream.write(data)
        return
    stream = _in_time(place, opened)
    try:
        while data := piece():
            _in_time(place, functools.partial(stream.write, data))
        _in_time(place, stream.close)
    except OSError:
        # The end of the object would write once more, and hold Python's lock until Azure answers.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(stream))
        raise


def _rename(client: Any, path: str, new_path: str) -> None:
    """Renames a file in Hadoop, which replaces none."""
    [there] = client.get_file_info([new_path])
    if there.type.name == "Directory":
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
    if there.type.name == "File":
        client.delete_file(new_path)
    client.move(path, new_path)


def delete(url: str) -> None:
    """Removes an object; a missing object is not an error."""
    place = _place(url)

    def remove() -> None:
        if place.scheme != "hdfs" or _info(place).type.name == "File":
            _filesystem(place).delete_file(place.path)

    with contextlib.suppress(FileNotFoundError):
        _asked(url, remove)


def times_below(url: str) -> Iterator[tuple[str, float]]:
    """Yields the URL of each object directly below a URL, with the time of its last change in seconds."""
    place = _place(url)
    selector = _library().FileSelector(place.path)
    try:
        infos = _asked(url, lambda: _filesystem(place).get_file_info(selector), is_short=False)
    except FileNotFoundError:
        return
    for info in infos:
        if info.type.name == "File":
            yield join(url, info.base_name), (info.mtime_ns or 0) / 1e9
