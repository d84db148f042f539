"""Every error that weaverl raises on purpose, in two branches: what the user gave, and what the cluster did.

A message says what is wrong, the value that was seen, and the remedy, in one line.
"""


class WeaverlError(Exception):
    """Root of the tree; catch it to catch everything weaverl raises on purpose."""


class UsageError(WeaverlError):
    """What the user gave is wrong; nothing was changed. The command line exits with 2."""


class SpecError(UsageError):
    """A job or cluster file is malformed."""


class TraceError(UsageError):
    """A trace file is malformed, damaged or of another format."""


class RefusedError(UsageError):
    """The controller refused a request as it stands (duplicate name, more GPUs than a pool has, ...)."""


class PhaseError(UsageError):
    """The phase interface was used in a way that has no meaning."""


class NestedPhaseError(PhaseError):
    """A phase was opened inside a phase of the other pool: a process would hold one pool and wait for another."""


class ClusterError(WeaverlError):
    """The cluster failed: a process, a node, the store or the controller. The command line exits with 1."""


class StoreUnavailableError(ClusterError):
    """The store did not answer; what was asked may or may not have been applied, and may be asked again."""


class StoreRefusedError(ClusterError):
    """The store answered, and cannot be used as it is: full, evicting, clustered, wrong version or password."""


class FencedError(ClusterError):
    """A newer holder has taken over: what this process was about to do must not happen any more."""


class ControllerLostError(ClusterError):
    """No answer from the controller within the patience that was set."""


class DeviceMemoryError(ClusterError):
    """A slot's device-memory budget does not hold what was asked."""


class HostMemoryError(ClusterError):
    """Host memory does not hold what was asked."""


class ResidencyError(ClusterError):
    """State could not be moved; it is where it was before."""


class CheckpointError(ClusterError):
    """A checkpoint is damaged or could not be written; the previous one is untouched."""


class WeightSyncError(ClusterError):
    """New weights did not arrive whole; the old version keeps serving."""
