"""The leader-epoch-checkpoint files of open logs. Native code only."""
