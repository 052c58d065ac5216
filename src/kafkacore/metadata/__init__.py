"""The cluster's metadata: records, the columnar image built from these records, the deltas between images, and the
publication of images and deltas.
"""
