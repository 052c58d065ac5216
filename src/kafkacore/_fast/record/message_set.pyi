"""Messages of old releases; native only."""
