"""Every key as an attribute: `log.segment.bytes` is `log_segment_bytes`. The types are in the stub beside this file."""

from __future__ import annotations

from kafkacore.config.values import Value


class KeyAttributes:
    """Parses a value when it is first read, and keeps it. Attributes cannot be assigned."""

    def value(self, name: str) -> Value:
        """The typed value of Kafka's key `name`. Raises KeyError for an unknown key."""
        raise KeyError(name)

    def __getattr__(self, attribute: str) -> Value:
        if attribute.startswith("_"):
            raise AttributeError(attribute)
        try:
            value = self.value(attribute.replace("_", "."))
        except KeyError:
            raise AttributeError(f"{type(self).__name__} has no key {attribute.replace('_', '.')}") from None
        self.__dict__[attribute] = value
        return value

    def __setattr__(self, attribute: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} cannot be changed: make another one")


class BrokerKeys(KeyAttributes):
    pass


class TopicKeys(KeyAttributes):
    pass
