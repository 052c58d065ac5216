"""Kafka's message tables as shapes, and what reads and writes messages by them: walk, view, columns, objects."""
