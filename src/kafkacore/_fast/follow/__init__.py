"""The follower's side of replication: the fetches from other brokers, what they append and what they truncate."""
