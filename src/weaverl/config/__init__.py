"""The strict reader of ``JOB.yaml`` and ``CLUSTER.yaml``.

``job_file`` and ``cluster_file`` say what each key means; ``checks`` compares a job with a cluster and a
cluster with this machine. YAML is used for its layout only (``document``): every scalar stays the text that
was written until a key's converter (``values``, ``units``) reads it, so nothing depends on what a version of
YAML takes ``no``, ``22:10`` or ``1e3`` for. All errors are SpecErrors of one line:
``FILE:LINE: key path: what, the value, remedy``.
"""
