"""The errors of a configuration: errors in a setting, and errors in the file itself."""

from __future__ import annotations


class ConfigError(ValueError):
    """An invalid setting. The message names the key, its value, and the allowed values. It never shows the value of a
    password.

    `key` is Kafka's name for the setting. `value` is None if the setting is missing.
    """

    def __init__(self, key: str, value: object, allowed: str) -> None:
        given = f"{key} is not set" if value is None else f"{key}={value}"
        super().__init__(f"{given}: {allowed}")
        self.key = key
        self.value = value
        self.allowed = allowed


class ConfigFileError(ConfigError):
    """A properties file cannot be read. `key` is the path of the file, possibly with a line number. `value` is None."""

    def __init__(self, source: str, problem: str) -> None:
        super().__init__(source, None, problem)

    def __str__(self) -> str:
        return f"{self.key}: {self.allowed}"
