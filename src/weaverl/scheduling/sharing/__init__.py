"""A cluster that is too small for all: who is next in the queue, who makes way, and what a deadline promises.

Nothing here is asked unless the cluster file has a ``sharing``. ``accounts`` and ``usage``: what tenants have used;
``promises``: deadlines; ``order``: the queue; ``preemption``: running jobs that are paused; ``waiting``: all together.
"""
