"""Partitions that this broker holds: who leads them, in which epoch, with which replicas in sync."""
