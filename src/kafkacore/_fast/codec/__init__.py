"""Compression: Kafka's four codecs over the libraries that are there."""
