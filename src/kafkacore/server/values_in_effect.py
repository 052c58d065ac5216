"""The values in effect of keys that nobody has set, where they are not Kafka's defaults. DescribeConfigs reports
them."""

from __future__ import annotations

from collections.abc import Mapping

from kafkacore.network.plane import Plane


def values_in_effect(plane: Plane) -> Mapping[str, str]:
    limits = plane.limits
    return {
        # The number of threads fits the machine.
        "num.network.threads": str(len(plane.processors)),
        # -1 means, in Kafka too, that the system sizes the buffers.
        "socket.send.buffer.bytes": str(limits.socket_send_buffer_bytes),
        "socket.receive.buffer.bytes": str(limits.socket_receive_buffer_bytes),
        # The limit is a share of the machine's memory.
        "queued.max.request.bytes": str(limits.memory_bytes),
    }
