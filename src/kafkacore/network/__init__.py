"""Planes, and the connections to other nodes. A plane is a group of listeners with its own acceptor thread, processor
threads, request ring (a queue) and handler loop."""
