"""HTTP/2 frames of gRPC calls, made by hand: what no client of gRPC would send."""

import socket
import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADERS, SETTINGS = 1, 4
END_HEADERS, ACK = 4, 1


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def _named(index: int, value: str) -> bytes:
    """A header whose name is in HPACK's static table, its value as it is."""
    return bytes([index, len(value)]) + value.encode()


def _literal(name: str, value: str) -> bytes:
    return b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


def opened_calls(method: str, calls: int) -> bytes:
    """The frames of a connection that opens calls, and sends no message in any of them."""
    headers = b"\x83\x86" + _named(0x04, method) + _named(0x01, "a")  # POST, http, the path, the authority
    headers += _literal("te", "trailers") + _literal("content-type", "application/grpc")
    streams = [frame(HEADERS, END_HEADERS, 2 * number + 1, headers) for number in range(calls)]
    return b"".join([PREFACE, frame(SETTINGS, 0, 0), frame(SETTINGS, ACK, 0), *streams])


def connect(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=30)
