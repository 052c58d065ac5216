"""The cluster's metadata: records, the columnar image that they build, its deltas, and the publication of both."""
