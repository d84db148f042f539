"""Weights from training ranks to rollout ranks, host to host.

To add a way to carry them, implement ``weaverl.sync.protocol.SyncStrategy``. The manifest, the packing and the
agreement of the ranks are there to be used; a strategy moves packed bytes, and publishes a version on all ranks or on
none.
"""
