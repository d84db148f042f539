"""Traces of jobs: our own schema, public cluster traces, and a documented generator."""
