"""Log directories: the life of their segments and the small files beside them, byte for byte Apache Kafka's."""
