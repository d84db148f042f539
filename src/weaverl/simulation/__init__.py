"""The simulator: clock, heap and world that carry out what the scheduler of the live cluster decides."""
