"""Kafka's message schemas (tables), and the modules that read and write messages with them: walk, view, columns,
object_sink. The tables are compiled to `Shape`s. A `Shape` describes one struct at one version.
"""
