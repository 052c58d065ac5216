"""Kafka's message tables, compiled to `Shape`s, and the modules that read and write messages with them: walk, view,
columns, object_sink.
"""
