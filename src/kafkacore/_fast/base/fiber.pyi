"""Fibers; native only."""
