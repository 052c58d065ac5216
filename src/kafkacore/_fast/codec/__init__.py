"""Compression: Kafka's four codecs over the installed libraries."""
