"""The one error of a configuration that cannot be used."""

from __future__ import annotations


class ConfigError(ValueError):
    """Names the key, the value that was given, and what is allowed. A password's value is never shown.

    `key` is Kafka's name of the setting, or a path for an error in the file itself; `value` is None where nothing was
    given.
    """

    def __init__(self, key: str, value: object, allowed: str) -> None:
        given = f"{key} is not set" if value is None else f"{key}={value}"
        super().__init__(f"{given}: {allowed}")
        self.key = key
        self.value = value
        self.allowed = allowed
