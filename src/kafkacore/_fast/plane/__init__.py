"""Network I/O of a plane (the data plane or the control plane, KIP-291): acceptors, processors, connections, frames and
answers (responses).
"""
