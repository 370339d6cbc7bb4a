"""Serves files by S3's protocol at next to no cost: the kernel sends the bytes (sendfile).

moto's server copies a whole object in Python for each range of it, on the cores of those who read. This one answers
HEAD and GET, with ranges, of a folder's files in every bucket: `python -m benchmarks.harness.range_server PORT FOLDER`.
"""

import contextlib
import http.server
import os
import pathlib
import re
import sys
import urllib.parse
from collections.abc import Iterator

from benchmarks.harness.store_servers import ROOT, free_port, running

_RANGE = re.compile(r"bytes=(\d+)-(\d*)")


@contextlib.contextmanager
def range_server(folder: pathlib.Path) -> Iterator[int]:
    """Runs a server of a folder's files until the block ends, and yields its port."""
    port = free_port()
    command = [sys.executable, "-m", "benchmarks.harness.range_server", str(port), str(folder)]
    with running(command, port, ROOT):
        yield port


def _serve(port: int, folder: str) -> None:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # As servers of stores do: the bytes after the header would wait 40 ms for the client's delayed acknowledgement.
        disable_nagle_algorithm = True

        def log_message(self, *args: object) -> None:
            pass

        def do_HEAD(self) -> None:
            self._answer(with_body=False)

        def do_GET(self) -> None:
            self._answer(with_body=True)

        def _answer(self, with_body: bool) -> None:
            _, _, key = urllib.parse.unquote(self.path.partition("?")[0]).removeprefix("/").partition("/")
            try:
                file = open(os.path.join(folder, key), "rb")
            except OSError:
                self.send_response_only(404)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            with file:
                state = os.fstat(file.fileno())
                asked = _RANGE.match(self.headers.get("Range", ""))
                start = int(asked[1]) if asked else 0
                stop = min(int(asked[2]) + 1, state.st_size) if asked and asked[2] else state.st_size
                self.send_response_only(206 if asked else 200)
                self.send_header("Content-Length", str(stop - start))
                self.send_header("Content-Type", "binary/octet-stream")
                self.send_header("ETag", f'"{state.st_mtime_ns:x}-{state.st_size:x}"')
                self.send_header("Last-Modified", self.date_time_string(int(state.st_mtime)))
                if asked:
                    self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{state.st_size}")
                self.end_headers()
                while with_body and start < stop:
                    start += os.sendfile(self.connection.fileno(), file.fileno(), start, stop - start)

    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    server.serve_forever()


if __name__ == "__main__":
    _serve(int(sys.argv[1]), sys.argv[2])
