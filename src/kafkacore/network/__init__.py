"""Planes: a listener group with its acceptor, processors, ring and handler loop. And connections to other nodes."""
