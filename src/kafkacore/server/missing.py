"""Settings that a node must not start with while it cannot keep what they promise."""

from __future__ import annotations

from kafkacore.config import BrokerConfig, ConfigError
from kafkacore.config.listeners import PLAINTEXT


def refuse_what_is_missing(config: BrokerConfig) -> None:
    """Raises ConfigError.

    A key without effect is a warning. But who asks for encryption or access control and does not get it has a node
    that is open to everyone and does not look so.
    """
    if config.zookeeper_mode:
        raise ConfigError("process.roles", None, "ZooKeeper mode is not there yet: set it to broker,controller")
    for endpoint in config.listeners:
        if endpoint.security_protocol != PLAINTEXT:
            raise ConfigError(
                "listeners",
                endpoint,
                f"{endpoint.security_protocol} is not there yet, and anything less would be served in the clear: "
                f"only listeners of {PLAINTEXT} can be started",
            )
    if authorizer := config.get("authorizer.class.name"):
        raise ConfigError(
            "authorizer.class.name",
            authorizer,
            "access control is not there yet, and a node without it lets everyone do everything: leave it out",
        )
