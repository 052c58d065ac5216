"""Kafka's message tables as shapes, and the readers and writers of messages: walk, view, columns, objects."""
