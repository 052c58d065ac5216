"""Benchmarks of Appendix A of the Kafka Controller Redesign, which measures how fast one client writes and reads znodes
in six ways."""
