"""Coordinators: state machines that store their state as records of an internal topic."""
