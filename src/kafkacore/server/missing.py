"""Settings with which a node must not start, because it cannot keep their promise yet."""

from __future__ import annotations

from kafkacore.config import BrokerConfig, ConfigError
from kafkacore.config.listeners import PLAINTEXT


def refuse_what_is_missing(config: BrokerConfig) -> None:
    """Raises ConfigError.

    A key without effect is a warning. But a node that was asked for encryption or access control and has none would be
    open to everyone without showing it.
    """
    if config.zookeeper_mode:
        raise ConfigError("process.roles", None, "ZooKeeper mode is not supported yet: set it to broker,controller")
    for endpoint in config.listeners:
        if endpoint.security_protocol != PLAINTEXT:
            raise ConfigError(
                "listeners",
                endpoint,
                f"{endpoint.security_protocol} is not supported yet, and this listener would serve it in the clear: "
                f"only listeners of {PLAINTEXT} can be started",
            )
    if authorizer := config.get("authorizer.class.name"):
        raise ConfigError(
            "authorizer.class.name",
            authorizer,
            "access control is not supported yet, and this node would let everyone do everything: remove the key",
        )
