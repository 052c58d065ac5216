"""What a cluster knows of itself: records, the columnar image they add up to, what changed, and who is told."""
