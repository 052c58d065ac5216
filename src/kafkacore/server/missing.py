"""Refuses settings of features that the node lacks when a start without the feature would be dangerous."""

from __future__ import annotations

from kafkacore.config import BrokerConfig, ConfigError
from kafkacore.config.listeners import PLAINTEXT


def refuse_what_is_missing(config: BrokerConfig) -> None:
    """Raises ConfigError.

    For most keys without effect a warning is enough. But a node that was configured for encryption or access control
    and has neither would be open to everyone, and nobody would notice.
    """
    if config.zookeeper_mode:
        raise ConfigError("process.roles", None, "ZooKeeper mode is not supported yet: set it to broker,controller")
    for endpoint in config.listeners:
        if endpoint.security_protocol != PLAINTEXT:
            raise ConfigError(
                "listeners",
                endpoint,
                f"{endpoint.security_protocol} is not supported yet, and this listener would serve in the clear: "
                f"configure only {PLAINTEXT} listeners",
            )
    if authorizer := config.get("authorizer.class.name"):
        raise ConfigError(
            "authorizer.class.name",
            authorizer,
            "access control is not supported yet, and this node would let everyone do everything: remove the key",
        )
