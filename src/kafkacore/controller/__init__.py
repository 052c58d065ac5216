"""The controllers, which decide which topics and partitions exist, and which brokers lead and follow. `quorum` is the
KRaft controller, `zookeeper` is the controller of ZooKeeper mode, and `common` holds pure algorithms."""
