"""Other ways to re-place running jobs than policy ``weave`` has, to be measured beside it in the simulated world.

``hourly`` is a bound: moves are free. ``reactions`` are what can be done when a job has drifted, and nothing else.
"""
