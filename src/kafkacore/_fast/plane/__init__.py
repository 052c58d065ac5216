"""Sockets: acceptors, processors, connections, frames and answers of one plane (KIP-291)."""
