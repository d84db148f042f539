"""The simulator: a clock, a heap and a world that carry out what the same scheduler decides that runs a live cluster."""
