"""A broker whose gate can send requests either to a native processor or to a Python handler, so that a test can compare
the two responses."""

from __future__ import annotations

import socket
import struct
from pathlib import Path
from typing import Any

from kafkacore._fast.plane.gate import GatePolicy
from kafkacore.protocol import apis
from lone_broker import Started


class Both:
    """A broker, a connection to it, and a count of the requests that reached a Python handler."""

    def __init__(self, path: Path, listener: str = "PLAINTEXT", **overrides: str) -> None:
        """Connects to the listener with the name `listener`."""
        self.started = Started(path, **overrides)
        self.handled = 0
        plane: Any = self.started.broker.plane
        answer = plane._answer

        def counted(*arguments: Any) -> Any:
            self.handled += 1
            return answer(*arguments)

        plane._answer = counted
        self.socket = socket.create_connection(("127.0.0.1", self.started.broker.bound[listener][1]), 10)

    def close(self) -> None:
        self.socket.close()
        self.started.stop()

    def read(self, size: int) -> bytes:
        got = b""
        while len(got) < size:
            part = self.socket.recv(size - len(got))
            assert part, "the broker closed the connection"
            got += part
        return got

    def ask(self, request: Any, version: int, correlation_id: int = 5) -> bytes:
        frame = apis.encode_request(version, correlation_id, "me", request)
        self.socket.sendall(struct.pack(">i", len(frame)) + frame)
        return self.read(struct.unpack(">i", self.read(4))[0])

    def gate(self, policy: GatePolicy | None) -> None:
        async def publish() -> None:
            self.started.broker.plane.native.publish_gate(policy)

        self.started.loop.run(publish(), 5)

    def both(self, request: Any, version: int) -> tuple[bytes, bool]:
        """Returns the response, and whether a native processor made it."""
        self.gate(None)
        before = self.handled
        native = self.ask(request, version)
        served = self.handled == before
        self.gate(GatePolicy("punt"))
        assert self.ask(request, version) == native
        assert self.handled == before + 1 + (not served)
        return native, served
