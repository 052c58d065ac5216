"""Kafka's protocol: messages as tables describe them, APIs and their versions, error codes, feature levels."""
