"""What larger units have of ours: bytes and microseconds."""

GIB = 2**30
HOUR_US = 3600e6
