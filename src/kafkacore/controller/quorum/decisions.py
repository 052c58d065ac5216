"""What a decision is: the records that would make it so, and the answer to give once they are committed."""

from __future__ import annotations

import logging
from functools import lru_cache
from random import Random
from typing import Any, Final, NamedTuple

from kafkacore.config import BrokerConfig, ConfigError
from kafkacore.config.values import Value, parse
from kafkacore.metadata.image import BROKER, TOPIC, MetadataImage, Topic
from kafkacore.metadata.partition_records import Records
from kafkacore.protocol.errors import ErrorCode, error_for

LOG: Final = logging.getLogger("kafkacore.controller")
MAX_RECORDS_PER_USER_OP: Final = 10_000
MAX_PARTITIONS_PER_REQUEST: Final = 10_000
MIN_IN_SYNC_REPLICAS: Final = "min.insync.replicas"
UNCLEAN_ELECTION: Final = "unclean.leader.election.enable"
_NOUNS: Final = {TOPIC: "topic", BROKER: "broker"}


class Decision(NamedTuple):
    """`atomic` records go into one batch; others may be parted, so that the last of them is the one that counts."""

    records: Records
    response: Any
    atomic: bool = True


class Settings(NamedTuple):
    """What decides beside the metadata. `random` is only asked by the active controller: what came of it is in
    records."""

    cluster_id: str
    config: BrokerConfig
    random: Random


def limit_records(count: int) -> None:
    """Raises POLICY_VIOLATION for one request that asks for too much at once."""
    if count > MAX_RECORDS_PER_USER_OP:
        raise error_for(ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")


def topic_setting(image: MetadataImage, settings: Settings, topic: str, key: str, otherwise: Value) -> Value:
    """A topic's own value, else what was set for this node, for all nodes, or in its server.properties (KIP-226).

    What is stored and no value of the key is as if it were not set: elections go on whatever the metadata has.
    """
    row = settings.config.keys[key]
    for kind, name in ((TOPIC, topic), (BROKER, str(settings.config.node_id)), (BROKER, "")):
        text = image.config(kind, name).get(key)
        if text is None:
            continue
        try:
            return parse(row, text)
        except ConfigError as error:
            _tell_unusable(_NOUNS[kind], name, str(error))
    return otherwise


@lru_cache(maxsize=64)
def _tell_unusable(noun: str, name: str, problem: str) -> None:
    """Once, for it is asked of every partition of every election."""
    LOG.warning("stored for %s %s and ignored: %s", noun, name or "(all)", problem)


def min_isr(image: MetadataImage, settings: Settings, topic: Topic) -> int:
    """No more than the first partition has replicas, which stands for all of them (KIP-966)."""
    first = image.partition(topic, 0)
    otherwise = settings.config.min_insync_replicas
    wanted = topic_setting(image, settings, topic.name, MIN_IN_SYNC_REPLICAS, otherwise)
    assert isinstance(wanted, int)
    return wanted if first is None else min(wanted, len(first.replicas))


def unclean_elections(image: MetadataImage, settings: Settings, topic: str) -> bool:
    otherwise = settings.config.unclean_leader_election_enable
    return topic_setting(image, settings, topic, UNCLEAN_ELECTION, otherwise) is True
