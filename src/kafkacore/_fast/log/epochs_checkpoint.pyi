"""The leader-epoch-checkpoint of open logs; native only."""
