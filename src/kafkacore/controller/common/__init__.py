"""Algorithms without state: the placement of replicas, and the changes of one partition."""
