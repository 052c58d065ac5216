"""Controllers decide which topics and partitions exist, and which brokers lead and follow. `quorum` is the KRaft
controller; `common` holds pure algorithms."""
