"""Snapshots of the metadata log. They are files of batches in the directory of its segments (KIP-630)."""

import os

from kafkacore.spark.log.layout import Replica, Segment
from kafkacore.storage import names


def snapshot_segments(replica: Replica) -> list[Segment]:
    """Returns the complete snapshots of a metadata log, the oldest first. `base_offset` is the offset after the last
    record that a snapshot covers."""
    found = []
    for name in sorted(os.listdir(replica.path)):
        parsed = names.parse_checkpoint_name(name)
        if parsed is None:
            continue
        path = os.path.join(replica.path, name)
        try:
            found.append(Segment(replica, path, parsed[0], os.path.getsize(path), False))
        except FileNotFoundError:  # a newer snapshot has replaced it
            continue
    return found
