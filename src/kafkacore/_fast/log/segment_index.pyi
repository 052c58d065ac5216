"""Offset and time indexes of segments; native only."""
