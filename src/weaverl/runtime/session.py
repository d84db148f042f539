"""``weave.init()``: who this process is in its job, and the handle that user code works with."""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from weaverl.channel.redis import RedisStore
from weaverl.domain.cluster import PoolKind
from weaverl.domain.jobs import PhaseKind
from weaverl.errors import PhaseError
from weaverl.runtime.conductors import Conductor, Observed, Permitted, PlainCalls, Progress
from weaverl.runtime.environment import RankEnvironment, mode, read_environment
from weaverl.runtime.observe import Observer
from weaverl.runtime.slots import device_memory, nodes_of

if TYPE_CHECKING:
    from weaverl.runtime.meeting import Meeting
    from weaverl.runtime.residency import Residency
    from weaverl.runtime.weights import SyncReport, Weights

_Loaded = TypeVar("_Loaded")


class Job:
    """This process in its job. Alone (no controller, no roles) every call is a plain one.

    ``role`` is ``driver``, ``rollout``, ``training`` or ``run``; it is empty where no agent started this process.
    """

    def __init__(self, environment: RankEnvironment | None, conductor: Conductor) -> None:
        self._environment = environment
        self._conductor = conductor
        self._residency: Residency | None = None
        self._entered = dict.fromkeys((PhaseKind.ROLLOUT, PhaseKind.TRAINING, PhaseKind.SYNC), 0)
        self.name = environment.rank.job if environment else os.environ.get("WEAVERL_JOB", "job")
        self.role = environment.rank.role if environment else os.environ.get("WEAVERL_ROLE", "")
        self.rank = environment.rank.rank if environment else 0
        self.attempt = environment.rank.attempt if environment else 1
        self.role_sizes = environment.role_sizes if environment else {}

    @property
    def is_woven(self) -> bool:
        """Whether a controller gives this process permits."""
        return isinstance(self._conductor, Permitted)

    def is_role(self, role: str) -> bool:
        """Whether this process does the work of a role: its own, or every role where it is the only process."""
        return self.role in (role, "", "run")

    def load(self, build: Callable[..., _Loaded], *arguments: Any, **keywords: Any) -> _Loaded:
        """Build state on the job's devices under a permit: its cold start. Returns what ``build`` returned.

        Use it for models and optimizers, so that two jobs never load onto one device at once.
        """
        pool = PoolKind.TRAINING if self.role == "training" else PoolKind.ROLLOUT
        with self._conductor.phase(PhaseKind.LOADING, pool, 0, Progress()):
            built = build(*arguments, **keywords)
            self._add(built)
        return built

    def keep(self, state: object) -> None:
        """Make state part of what moves on and off the job's devices; ``@weave.phase(state=...)`` calls this."""
        self._add(state)
        self._conductor.keep_off_slots()

    def resume_from(self, iteration: int) -> None:
        """The next phases belong to this iteration; to be called after a checkpoint was loaded."""
        for kind in self._entered:
            self._entered[kind] = iteration

    def check(self) -> None:
        """Raise FencedError if this attempt of the job was given up, so that a frozen process that wakes stops."""
        self._conductor.check()

    def open_phase(self, kind: PhaseKind, pool: PoolKind, progress: Progress) -> AbstractContextManager[None]:
        """A block in which the next phase of a kind runs; user code decorates with ``weave.phase`` instead."""
        iteration = self._entered[kind]
        self._entered[kind] += 1
        return self._conductor.phase(kind, pool, iteration, progress)

    @cached_property
    def meeting(self) -> "Meeting":
        """Where the ranks of all roles meet: a torch store, process groups. PhaseError in a job of one process."""
        from weaverl.runtime.meeting import Meeting

        if self._environment is None:
            raise PhaseError("job.meeting needs ranks that an agent started; alone there is nobody to meet")
        return Meeting(self._environment)

    @cached_property
    def weights(self) -> "Weights":
        """The weight sync: ``push`` in the training role, ``pull`` in the rollout role.

        Weights travel as bfloat16. Alone, push and pull hand over within the process.
        """
        import torch

        from weaverl.runtime.weights import Weights
        from weaverl.sync.local import LocalSync

        together = self._environment is None or self.role == "run"
        return Weights(
            LocalSync() if together else self.meeting.flat_sync(),
            self._residency,
            self._conductor.check,
            cast_dtype=torch.bfloat16,
            on_push=self._synced,
        )

    @property
    def checkpoint_directory(self) -> Path | None:
        """Where the job file wants checkpoints."""
        return self._environment.checkpoint_directory if self._environment else None

    def _add(self, state: object) -> None:
        """Make state move with the permits, if there are any. The first state brings torch in."""
        if self._environment is None or not isinstance(self._conductor, Permitted):
            return
        if self._residency is None:
            from weaverl.runtime.residency import Residency

            memory, accelerator = device_memory(self._environment.ledger, self._conductor.nodes)
            self._residency = Residency(memory, accelerator=accelerator)
            self._conductor.move_with(self._residency)
        self._residency.add(state)

    def _synced(self, report: "SyncReport") -> None:
        self._conductor.synced(self._entered[PhaseKind.SYNC], report.microseconds, report.bytes)
        self._entered[PhaseKind.SYNC] += 1


class _Session(msgspec.Struct):
    job: Job | None = None


_session = _Session()


def init() -> Job:
    """Join the job that the environment names, and return this process's handle; the same one on every call.

    Without an agent's environment the process runs alone. With ``WEAVERL_MODE=observe`` phases are measured and
    written to ``WEAVERL_OBSERVE_DIR`` (``weaverl-observe`` where it is unset), and no permit is asked.

    Raises:
        SpecError: the environment is incomplete.
        StoreUnavailableError: the cluster's store does not answer.
    """
    if _session.job is None:
        _session.job = _join()
    return _session.job


def current_job() -> Job:
    """The job of this process; it is joined if ``init`` was not called."""
    return init()


def _join() -> Job:
    environment = read_environment()
    if mode() == "observe":
        return Job(environment, Observed(_observer(environment)))
    if environment is None:
        return Job(None, PlainCalls())
    return _woven(environment)


def _observer(environment: RankEnvironment | None) -> Observer:
    directory = Path(os.environ.get("WEAVERL_OBSERVE_DIR") or "weaverl-observe")
    if environment is not None:
        return Observer(directory, environment.rank.job, environment.rank.role, environment.rank.rank)
    name, role = os.environ.get("WEAVERL_JOB", "job"), os.environ.get("WEAVERL_ROLE", "run")
    return Observer(directory, name, role, int(os.environ.get("RANK", "0")))


def _woven(environment: RankEnvironment) -> Job:
    store = RedisStore.from_url(environment.url, password=environment.password)
    nodes = nodes_of(store, environment.slots)
    return Job(environment, Permitted(store, environment.rank, nodes, environment.slots))
