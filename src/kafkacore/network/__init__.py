"""Planes: a plane is a group of listeners with its acceptor, processors, ring and handler loop. Also connections to
other nodes."""
