"""Kafka's protocol: the messages that the tables describe, the APIs and their versions, error codes, and feature
levels."""
