"""Stateless algorithms: the placement of replicas, and changes of a single partition."""
