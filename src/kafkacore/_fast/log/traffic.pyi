"""The traffic counts of a partition. Native code only; Python calls `traffic_counts`."""
