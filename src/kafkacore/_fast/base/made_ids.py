"""Makes ids for topics that have none. Topics have had ids since inter.broker.protocol.version 2.8 (KIP-516).

Metadata images and tables find topics by id. So for a topic without an id, a broker in ZooKeeper mode makes an id from
the topic's name. Every broker makes the same id for the same name. The id is internal: no response, no file and no
request to another broker contains it.
"""

from __future__ import annotations

import hashlib
from typing import Final

from kafkacore._fast.base.uuid import ZERO, Uuid

# Random ids have version 4 in these bits and made ids have version 8, which RFC 9562 reserves for custom formats. So no
# random id equals a made id.
_PREFIX: Final = b"byname"
_VERSION: Final = 8


def made_id(name: str) -> Uuid:
    """Returns the id for the topic with this name. Topics with different names get different ids."""
    digest = hashlib.sha256(name.encode()).digest()
    return Uuid(_PREFIX + bytes([_VERSION << 4 | digest[0] & 0x0F]) + digest[1:10])


def is_made(topic_id: Uuid) -> bool:
    return topic_id[:6] == _PREFIX and topic_id[6] >> 4 == _VERSION


def shown(topic_id: Uuid) -> Uuid:
    """Returns the id to show to clients and other brokers: ZERO in place of a made id."""
    return ZERO if is_made(topic_id) else topic_id
