"""The reports that a node makes about itself: metrics under Kafka's names, a Prometheus endpoint for the metrics, and
the request logs."""
