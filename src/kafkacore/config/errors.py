"""What is wrong with a configuration that cannot be used: a setting, or the file itself."""

from __future__ import annotations


class ConfigError(ValueError):
    """Names the key, the value that was given, and what is allowed. A password's value is never shown.

    `key` is Kafka's name of the setting; `value` is None where nothing was given.
    """

    def __init__(self, key: str, value: object, allowed: str) -> None:
        given = f"{key} is not set" if value is None else f"{key}={value}"
        super().__init__(f"{given}: {allowed}")
        self.key = key
        self.value = value
        self.allowed = allowed


class ConfigFileError(ConfigError):
    """A file of properties that cannot be read; `key` is its path, perhaps with a line, and `value` is None."""

    def __init__(self, source: str, problem: str) -> None:
        super().__init__(source, None, problem)

    def __str__(self) -> str:
        return f"{self.key}: {self.allowed}"
