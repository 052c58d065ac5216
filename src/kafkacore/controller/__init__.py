"""Controllers: what decides who leads, who follows and what exists. `quorum` is KRaft's; `common` is pure
algorithms."""
