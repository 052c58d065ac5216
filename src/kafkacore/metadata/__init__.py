"""The cluster's metadata: its records, the image (the state after these records, stored in columns), the deltas between
images, and the publication of images and deltas to subscribers.
"""
