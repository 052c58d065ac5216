"""A decision: records, and the response to send after their commit."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import lru_cache
from random import Random
from typing import Any, Final, NamedTuple, TypeVar

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
T = TypeVar("T")
_NOUNS: Final = {TOPIC: "topic", BROKER: "broker"}


class Decision(NamedTuple):
    """The result of a request. If `atomic`, all records go into one batch. Otherwise they may be split over several
    batches, and the decision is complete with the last record. The response is sent when the last record and the offset
    `after` are committed."""

    records: Records
    response: Any
    atomic: bool = True
    after: int = -1


class Settings(NamedTuple):
    """The inputs of a decision, apart from the metadata. Only the active controller uses `random`; the other
    controllers read its results from the records."""

    cluster_id: str
    config: BrokerConfig
    random: Random


def limit_records(count: int) -> None:
    """Raises POLICY_VIOLATION if a request makes more than the allowed number of records."""
    if count > MAX_RECORDS_PER_USER_OP:
        raise error_for(ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")


def topic_setting(image: MetadataImage, settings: Settings, topic: str, key: str, otherwise: Value) -> Value:
    """Returns the value of a setting. These places are searched in order: the topic, this node, all nodes, and
    server.properties (KIP-226).

    A stored text that is not a valid value of the key counts as not set, so that elections still work.
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
    """Logs an unusable setting. The cache limits this to one message, because each election reads the setting for every
    partition."""
    LOG.warning("a setting of %s %s is ignored; change or delete it: %s", noun, name or "(all)", problem)


def min_isr(image: MetadataImage, settings: Settings, topic: Topic) -> int:
    """Returns min.insync.replicas, but at most the number of replicas of the topic's first partition (KIP-966)."""
    first = len(image.replicas(topic, 0))
    wanted = wanted_isr(image, settings, topic.name)
    return min(wanted, first) if first else wanted


def wanted_isr(image: MetadataImage, settings: Settings, topic: str) -> int:
    """Returns the configured min.insync.replicas."""
    otherwise = settings.config.min_insync_replicas
    wanted = topic_setting(image, settings, topic, MIN_IN_SYNC_REPLICAS, otherwise)
    assert isinstance(wanted, int)
    return wanted


def topic_values(
    image: MetadataImage, settings: Settings, key: str, value_of: Callable[[MetadataImage, Settings, str], T]
) -> tuple[T, dict[str, T]]:
    """Calls `value_of`. Returns its value for the topics that do not set `key`, and its value for each topic that sets
    `key`."""
    names = [name for (kind, name), values in image.configs.items() if kind == TOPIC and key in values]
    return value_of(image, settings, ""), {name: value_of(image, settings, name) for name in names}


def unclean_elections(image: MetadataImage, settings: Settings, topic: str) -> bool:
    otherwise = settings.config.unclean_leader_election_enable
    return topic_setting(image, settings, topic, UNCLEAN_ELECTION, otherwise) is True
