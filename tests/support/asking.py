"""Sends one request to a broker and returns the response. Both are message objects."""

from __future__ import annotations

import struct
from typing import Any

from kafkacore.protocol import apis, messages
from wire import call


def ask(address: str, request: Any, version: int) -> Any:
    encoded = apis.encode_request(version, 1, "test", request)
    kind = getattr(messages, type(request).__name__.removesuffix("Request") + "Response")
    body = call(address, struct.pack(">i", len(encoded)) + encoded, 20)
    return kind.decode(body[len(apis.response_header(request.API_KEY, version, 1)) - 4 :], version)
