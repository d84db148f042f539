"""Scheduling policies. To add one, write a module with ``candidates(view, spec)`` and name it in ``placement``."""
