"""The values of keys that nobody has set, where they differ from Kafka's defaults: DescribeConfigs reports these."""

from __future__ import annotations

from collections.abc import Mapping

from kafkacore.network.plane import Plane


def values_in_effect(plane: Plane) -> Mapping[str, str]:
    limits = plane.limits
    return {
        # As many as the machine has use for.
        "num.network.threads": str(len(plane.processors)),
        # -1: the system sizes the buffers, in Kafka's words too.
        "socket.send.buffer.bytes": str(limits.socket_send_buffer_bytes),
        "socket.receive.buffer.bytes": str(limits.socket_receive_buffer_bytes),
        # A share of the machine's memory.
        "queued.max.request.bytes": str(limits.memory_bytes),
    }
