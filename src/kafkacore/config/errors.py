"""The errors of a configuration: of a setting, or of the file itself."""

from __future__ import annotations


class ConfigError(ValueError):
    """Names the key, its value, and what is allowed. The value of a password is never shown.

    `key` is Kafka's name of the setting; `value` is None if the setting is missing.
    """

    def __init__(self, key: str, value: object, allowed: str) -> None:
        given = f"{key} is not set" if value is None else f"{key}={value}"
        super().__init__(f"{given}: {allowed}")
        self.key = key
        self.value = value
        self.allowed = allowed


class ConfigFileError(ConfigError):
    """An unreadable file of properties; `key` is its path, perhaps with a line, and `value` is None."""

    def __init__(self, source: str, problem: str) -> None:
        super().__init__(source, None, problem)

    def __str__(self) -> str:
        return f"{self.key}: {self.allowed}"
