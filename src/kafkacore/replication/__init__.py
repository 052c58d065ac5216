"""Partitions that this broker hosts: their leaders, their epochs, and their in-sync replicas."""
