"""A few hand-written requests, so that a test of the broker shares no code with the broker."""

import socket
import struct

from processes import PATIENCE


def string(text):
    encoded = text.encode()
    return struct.pack(">h", len(encoded)) + encoded


def frame(api_key, api_version, body, correlation_id=1, client_id="wire"):
    """Returns a whole request frame with header version 1."""
    payload = struct.pack(">hhi", api_key, api_version, correlation_id) + string(client_id) + body
    return struct.pack(">i", len(payload)) + payload


def receive_exactly(connection, size):
    chunks = bytearray()
    while len(chunks) < size:
        chunk = connection.recv(min(size - len(chunks), 1 << 20))
        if not chunk:
            raise ConnectionError(f"the connection was closed after {len(chunks)} of {size} bytes")
        chunks += chunk
    return bytes(chunks)


def receive(connection):
    """Receives one response. Returns the correlation id, and the bytes after it."""
    (size,) = struct.unpack(">i", receive_exactly(connection, 4))
    payload = receive_exactly(connection, size)
    return struct.unpack(">i", payload[:4])[0], payload[4:]


def call(address, request, timeout_s=5.0):
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=timeout_s * PATIENCE) as connection:
        connection.sendall(request)
        return receive(connection)[1]


def brokers_in_metadata(address):
    """Returns the number of brokers in a Metadata v1 response, or 0 if the broker does not answer yet."""
    try:
        body = call(address, frame(3, 1, struct.pack(">i", 0)))
    except OSError:
        return 0
    return struct.unpack(">i", body[:4])[0]
