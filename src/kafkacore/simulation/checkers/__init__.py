"""Checks the invariants of a cluster. The only input of the checkers is `observations`, and they share no code with the
code under test."""
