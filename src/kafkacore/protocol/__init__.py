"""Kafka's protocol: messages by their tables, APIs and their versions, error codes, feature levels."""
