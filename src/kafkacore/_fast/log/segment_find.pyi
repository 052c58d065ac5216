"""Batches found in segments; native only."""
