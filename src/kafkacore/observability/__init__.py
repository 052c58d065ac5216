"""What a node tells about itself: metrics under Kafka's names, their Prometheus exposition, the request log."""
