"""Serves one model over one HTTP server: `python -m benchmarks.harness.http_server SIDE BASE_PATH PORT`.

Behind every side is the same RestApi, which parses the request, runs the model and writes the response.
"""

import asyncio
import concurrent.futures
import os
import pathlib
import sys
from collections.abc import Mapping
from typing import Any

import uvicorn

from ctrpipe.common.processes import end_with_parent
from ctrpipe.serving.server.core import ServerCore
from ctrpipe.serving.server.http_protocol import Response
from ctrpipe.serving.server.http_request import Request
from ctrpipe.serving.server.options import ServerOptions
from ctrpipe.serving.server.rest import RestApi

MODEL, HOST = "ctr", "127.0.0.1"
BASE_PATH = "CTRPIPE_BENCHMARK_BASE_PATH"  # of granian's worker, which imports `granian_app` by name


class Application:
    """The REST API as an ASGI and an RSGI application. Answers on the loop's thread what ctrpipe answers there."""

    def __init__(self, api: RestApi):
        self._api = api
        self._pool = concurrent.futures.ThreadPoolExecutor(16)

    async def _answer(self, request: Request) -> Response:
        if self._api.is_short(request):
            return self._api.answer(request)
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._api.answer, request)

    async def asgi(self, scope: Mapping[str, Any], receive: Any, send: Any) -> None:
        message = await receive()
        body = message["body"]
        if message["more_body"]:
            parts = [body]
            while message["more_body"]:
                message = await receive()
                parts.append(message["body"])
            body = b"".join(parts)
        response = await self._answer(Request(scope["method"], scope["path"], dict(scope["headers"]), body))
        headers = [(b"content-type", response.content_type), (b"content-length", b"%d" % len(response.body))]
        await send({"type": "http.response.start", "status": response.status, "headers": headers})
        await send({"type": "http.response.body", "body": response.body})

    async def rsgi(self, scope: Any, protocol: Any) -> None:
        headers = {name.encode(): value.encode() for name, value in scope.headers.items()}
        response = await self._answer(Request(scope.method, scope.path, headers, await protocol()))
        content_type = [("content-type", response.content_type.decode())]
        protocol.response_bytes(response.status, content_type, response.body)


def _api(base_path: str) -> RestApi:
    # Without busy polling: with it, one side would take the processor from the others.
    options = ServerOptions(model_base_path=pathlib.Path(base_path), model_name=MODEL, rest_api_busy_poll_micros=0)
    core = ServerCore(options)
    core.start()
    return RestApi(core, options, core.metrics)


def granian_app() -> Any:
    """Returns the RSGI application. Called in granian's worker process."""
    end_with_parent()
    return Application(_api(os.environ[BASE_PATH])).rsgi


def _run_ctrpipe(base_path: str, port: int) -> None:
    server = _api(base_path).server()
    server.config.host, server.config.port = HOST, port
    server.run()


def _run_uvicorn(base_path: str, port: int) -> None:
    app = Application(_api(base_path)).asgi
    uvicorn.run(
        app,
        host=HOST,
        port=port,
        interface="asgi3",
        http="httptools",
        loop="uvloop",
        ws="none",
        lifespan="off",
        timeout_keep_alive=60,
        log_level="error",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
    )


def _run_granian(base_path: str, port: int) -> None:
    import granian  # type: ignore[import-not-found]  # no dependency: a peer, which need not be installed

    os.environ[BASE_PATH] = base_path
    target = f"{__name__ if __name__ != '__main__' else 'benchmarks.harness.http_server'}:granian_app"
    server = granian.Granian(
        target, HOST, port, interface="rsgi", factory=True, loop="uvloop", log_access=False, log_enabled=False
    )
    server.serve()


RUN = {"ctrpipe": _run_ctrpipe, "uvicorn": _run_uvicorn, "granian": _run_granian}

if __name__ == "__main__":
    end_with_parent()
    RUN[sys.argv[1]](sys.argv[2], int(sys.argv[3]))
