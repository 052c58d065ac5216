"""Refuses settings of missing features if it would be dangerous to start without these features."""

from __future__ import annotations

from kafkacore.config import BrokerConfig, ConfigError
from kafkacore.config.listeners import PLAINTEXT
from kafkacore.controller.zookeeper.inter_broker_protocol import LEAST, InterBrokerProtocol


def refuse_what_is_missing(config: BrokerConfig) -> None:
    """Raises ConfigError for settings that would be dangerous to ignore. For most keys without effect, a warning is
    enough. But if a node ignored settings for encryption or access control, it would be open to everyone, and nobody
    would notice."""
    if config.zookeeper_mode:
        _refuse_of_zookeeper_mode(config)
    for endpoint in config.listeners:
        if endpoint.security_protocol != PLAINTEXT:
            raise ConfigError(
                "listeners",
                endpoint,
                f"{endpoint.security_protocol} is not supported yet, and this listener would send data unencrypted: "
                f"configure only {PLAINTEXT} listeners",
            )
    if authorizer := config.get("authorizer.class.name"):
        raise ConfigError(
            "authorizer.class.name",
            authorizer,
            "access control is not supported yet, and this node would allow everyone everything: remove the key",
        )


def _refuse_of_zookeeper_mode(config: BrokerConfig) -> None:
    if config.zookeeper_metadata_migration_enable:
        key = "zookeeper.metadata.migration.enable"
        raise ConfigError(key, True, "migration from ZooKeeper to KRaft is not supported: leave it false")
    if config.zookeeper_ssl_client_enable:
        raise ConfigError("zookeeper.ssl.client.enable", True, "TLS to ZooKeeper is not supported: leave it false")
    if config.zookeeper_set_acl:
        raise ConfigError(
            "zookeeper.set.acl",
            True,
            "ACLs of znodes are not supported, because no key sets a name and password for ZooKeeper: leave it false",
        )
    key, version = "inter.broker.protocol.version", config.inter_broker_protocol_version
    try:
        protocol = InterBrokerProtocol(version)
    except ValueError as error:
        raise ConfigError(key, version, str(error)) from None
    if protocol < LEAST:
        raise ConfigError(
            key,
            version,
            f"must be at least {LEAST}, because older requests of a controller do not contain the broker epoch: "
            "raise it with Apache Kafka's brokers first",
        )
