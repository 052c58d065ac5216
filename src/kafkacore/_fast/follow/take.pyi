"""Records of a leader. Native code only."""
