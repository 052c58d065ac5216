"""Makes every key an attribute: `log.segment.bytes` becomes `log_segment_bytes`. The types are in the stub
attributes.pyi."""

from __future__ import annotations

from kafkacore.config.values import Value


class KeyAttributes:
    """Parses a value at its first access, and caches it. Attributes are read-only."""

    def value(self, name: str) -> Value:
        """Returns the typed value of Kafka's key `name`. Raises KeyError for an unknown key."""
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
