"""Scheduling policies: each module answers ``choose(state, spec)`` with a ``Decision`` and touches nothing.

To add one, write the module and name it in ``placement`` and in ``state.POLICIES``.
"""
