"""Manages log directories: segments and the small files beside them, byte for byte as Apache Kafka has them."""
