"""Compression: Kafka's four codecs, implemented with the installed libraries."""
