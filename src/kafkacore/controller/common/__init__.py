"""Algorithms without state: where replicas go, who leads, what a partition becomes."""
