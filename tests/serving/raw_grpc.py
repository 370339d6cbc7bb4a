"""Handmade HTTP/2 frames of gRPC calls that no gRPC client would send."""

import contextlib
import socket
import struct
import threading
import time

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 2, 3, 4, 6, 7, 8, 9
END_STREAM, END_HEADERS, ACK = 1, 4, 1


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def _named(index: int, value: str) -> bytes:
    """A header with a name from HPACK's static table and a literal value."""
    return bytes([index, len(value)]) + value.encode()


def _literal(name: str, value: str) -> bytes:
    return b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


def _call_headers(method: str) -> bytes:
    headers = b"\x83\x86" + _named(0x04, method) + _named(0x01, "a")  # POST, http, the path, the authority
    headers += _literal("te", "trailers") + _literal("content-type", "application/grpc")
    return headers


def opened_calls(method: str, calls: int) -> bytes:
    """The frames of a connection that opens calls without messages."""
    headers = _call_headers(method)
    streams = [frame(HEADERS, END_HEADERS, 2 * number + 1, headers) for number in range(calls)]
    return b"".join([PREFACE, frame(SETTINGS, 0, 0), frame(SETTINGS, ACK, 0), *streams])


def asked_calls(method: str, message: bytes, calls: int) -> bytes:
    """The frames of a connection that opens calls with short messages and accepts no answer."""
    data = b"\0" + struct.pack(">I", len(message)) + message
    sent = [frame(DATA, END_STREAM, 2 * number + 1, data) for number in range(calls)]
    return opened_calls(method, calls) + b"".join(sent)


def reset_calls(method: str, first: int, calls: int) -> bytes:
    """The frames that open `calls` calls, numbered from `first`, and reset each at once."""
    headers, cancel = _call_headers(method), struct.pack(">I", 8)
    streams = [2 * number + 1 for number in range(first, first + calls)]
    return b"".join(
        frame(HEADERS, END_HEADERS, stream, headers) + frame(RST_STREAM, 0, stream, cancel) for stream in streams
    )


class UnfinishedMessage(threading.Thread):
    """A call that sends part of its message at full speed, and never the rest.

    Args:
        address: HOST:PORT.
        declared: The declared length of the message.
        size: The number of bytes to send.

    Attributes:
        sent: Bytes sent so far.
    """

    def __init__(self, address: str, declared: int, size: int):
        super().__init__(daemon=True)
        self._connection = connect(address)
        self._connection.settimeout(None)  # with a time limit, a read that is not to wait waits
        self._prefix = b"\0" + struct.pack(">I", declared)
        self._size = size
        self._windows = {0: 65535, 1: 65535}  # bytes that may be sent: on the connection, in the call
        self._initial = 65535
        self.sent = 0

    def run(self) -> None:
        self._connection.sendall(opened_calls("/tensorflow.serving.PredictionService/Predict", 1))
        received = b""
        try:
            while self.sent < self._size:
                received = self._read(received)
                part = min(16384, self._size - self.sent, *self._windows.values())
                if part <= len(self._prefix):
                    time.sleep(0.001)
                    continue
                payload = (b"" if self.sent else self._prefix).ljust(part, b"\x0a")
                self._connection.sendall(frame(DATA, 0, 1, payload))
                self.sent += part
                self._windows = {stream: left - part for stream, left in self._windows.items()}
        except (OSError, EOFError):  # the server has ended the call or the connection
            pass

    def _read(self, received: bytes) -> bytes:
        """Follows what the server has sent. Returns what is left of it. Raises EOFError: it has ended the call."""
        with contextlib.suppress(BlockingIOError):
            while data := self._connection.recv(1 << 16, socket.MSG_DONTWAIT):
                received += data
        while len(received) >= 9 + int.from_bytes(received[:3], "big"):
            size, kind, flags = int.from_bytes(received[:3], "big"), received[3], received[4]
            stream, payload = int.from_bytes(received[5:9], "big"), received[9 : 9 + size]
            received = received[9 + size :]
            if kind == WINDOW_UPDATE and stream in self._windows:
                self._windows[stream] += int.from_bytes(payload, "big")
            elif kind == SETTINGS and not flags & ACK:
                for at in range(0, size, 6):
                    name, value = struct.unpack(">HI", payload[at : at + 6])
                    if name == 4:  # the initial window
                        self._windows[1] += value - self._initial
                        self._initial = value
            elif kind == PING and not flags & ACK:
                self._connection.sendall(frame(PING, ACK, 0, payload))
            elif kind in (RST_STREAM, GOAWAY) or (kind == HEADERS and stream == 1):
                raise EOFError
        return received

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()
        self.join()


def connect(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=30)
