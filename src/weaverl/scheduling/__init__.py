"""The scheduler: one door, ``Scheduler.handle(event) -> list[Command]``, pure from end to end.

Behind the door are ``placement`` (arrivals, groups, queue), ``lifecycle`` (ranks, ends, retries) and one
``rotation`` a group (turns and permits). Decisions are made by ``policies``; each is a function from a view of the
cluster to candidate placements, and touches nothing.
"""
