"""Manages log directories: the segments and the small files beside them, in exactly the format of Apache Kafka."""
