"""A client of Apache ZooKeeper, and the znodes in which Apache Kafka 3.9 keeps a cluster's state."""
