"""The reports of a node about itself: metrics under Kafka's names, a Prometheus endpoint for them, and the request
logs."""
