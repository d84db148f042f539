"""weaverl: several synchronous RL post-training jobs, woven on a rollout pool and a training pool.

Users write ``import weaverl as weave``. Importing it loads neither torch nor ray.
"""

from weaverl.runtime.job_checkpoints import checkpoint, resume
from weaverl.runtime.phases import phase, runtime_hook
from weaverl.runtime.session import Job, init
from weaverl.version import VERSION

__version__ = VERSION
__all__ = ["Job", "__version__", "checkpoint", "init", "phase", "resume", "runtime_hook"]
