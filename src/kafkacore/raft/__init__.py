"""KRaft (KIP-595, 630, 853, 996): a sans-IO core, the log and snapshots it needs, and the driver that runs it."""
