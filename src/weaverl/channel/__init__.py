"""The control channel: a small store with streams, keys and leases, and the records that travel through it.

Two implementations pass the same contract tests: in memory, and Redis or Valkey. To add one, implement
``weaverl.channel.store.Store`` and add it to the fixture of ``tests/channel/test_store_contract.py``.
"""
