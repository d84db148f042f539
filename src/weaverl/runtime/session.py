"""``weave.init()``: who this process is in its job, and the handle that user code works with."""

import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from weaverl.channel.names import rank_name
from weaverl.channel.redis import RedisStore
from weaverl.domain.cluster import PoolKind
from weaverl.domain.jobs import PhaseKind
from weaverl.errors import NestedPhaseError, PhaseError
from weaverl.runtime.checkpoint_agreement import StoreExchange
from weaverl.runtime.conductors import Conductor, Permitted
from weaverl.runtime.environment import RankEnvironment, checkpoint_folder, mode, read_environment
from weaverl.runtime.observe import Observer
from weaverl.runtime.slots import nodes_of
from weaverl.runtime.unwoven import Observed, OpenPhase, PlainCalls

if TYPE_CHECKING:
    from weaverl.runtime.meeting import Meeting
    from weaverl.runtime.residency import Residency
    from weaverl.runtime.weights import SyncReport, Weights

_Loaded = TypeVar("_Loaded")

_within: ContextVar[OpenPhase | None] = ContextVar("weaverl_phase", default=None)
"""The phase that a thread's or task's code was called in; tasks that outlive it inherit it, so it may have ended."""


class Job:
    """This process in its job. Alone (no controller, no roles) every call is a plain one.

    ``role`` is ``driver``, ``rollout``, ``training`` or ``run``; it is empty where no agent started this process.
    """

    def __init__(
        self, environment: RankEnvironment | None, conductor: Conductor, exchange: StoreExchange | None = None
    ) -> None:
        self._environment = environment
        self._conductor = conductor
        self.exchange = exchange
        self._entered = dict.fromkeys((PhaseKind.ROLLOUT, PhaseKind.TRAINING), 0)
        self._first_iteration = 0
        self._gate = threading.Lock()
        self.opened: OpenPhase | None = None
        self.name = environment.rank.job if environment else os.environ.get("WEAVERL_JOB", "job")
        self.role = environment.rank.role if environment else os.environ.get("WEAVERL_ROLE", "")
        self.rank = environment.rank.rank if environment else int(os.environ.get("RANK", "0"))
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

        Use it for models and optimizers, so that two jobs never load onto one device at once. Inside a phase of the
        same pool that phase's permit serves; raises as a phase does otherwise.
        """
        pool = PoolKind.TRAINING if self.role == "training" else PoolKind.ROLLOUT
        with self.open_phase(PhaseKind.LOADING, pool):
            built = build(*arguments, **keywords)
            self.keep(built)
        return built

    def keep(self, state: object) -> None:
        """Make state part of what moves on and off the job's devices; ``@weave.phase(state=...)`` calls this.

        State that was built outside of phases and ``load`` goes to host memory until the next phase.
        """
        self._conductor.keep(state)

    def resume_from(self, iteration: int) -> None:
        """The next phases belong to this iteration; to be called after a checkpoint was loaded."""
        self._first_iteration = iteration
        for kind in self._entered:
            self._entered[kind] = iteration

    def saved(self, iteration: int) -> None:
        """Tell the controller of a checkpoint that ``weave.checkpoint`` has written."""
        self._conductor.saved(iteration)

    def check(self) -> None:
        """Raise FencedError if this attempt of the job was given up, so that a frozen process that wakes stops."""
        self._conductor.check()

    @contextmanager
    def open_phase(self, kind: PhaseKind, pool: PoolKind) -> Iterator[None]:
        """A block that is a phase; user code decorates with ``weave.phase`` instead, which says what is raised."""
        with self._entering(kind, pool) as entered:
            if entered is None:
                yield
                return
            with self._conductor.turn(entered):
                yield

    @asynccontextmanager
    async def open_phase_off_loop(self, kind: PhaseKind, pool: PoolKind) -> AsyncIterator[None]:
        """The same for a coroutine: while it waits for its turn, the event loop goes on."""
        with self._entering(kind, pool) as entered:
            if entered is None:
                yield
                return
            with await self._conductor.turn_off_loop(entered):
                yield

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
            self.residency,
            self._conductor.check,
            cast_dtype=torch.bfloat16,
            on_push=self._synced,
        )

    @property
    def checkpoint_folder(self) -> Path | None:
        """Where this rank's checkpoints are; None if the job keeps none."""
        if self._environment is not None:
            return self._environment.checkpoint_folder
        base = os.environ.get("WEAVERL_CHECKPOINT_DIRECTORY")
        return checkpoint_folder(Path(base), self.role or "run", self.rank) if base else None

    @property
    def residency(self) -> "Residency | None":
        """What moves this process's state on and off its devices; None where nothing moves."""
        return self._conductor.residency

    @contextmanager
    def _entering(self, kind: PhaseKind, pool: PoolKind) -> Iterator[OpenPhase | None]:
        """Become the one open phase of this process; None inside one of the same pool, which is a plain call."""
        entered = self._enter(kind, pool)
        if entered is None:
            yield None
            return
        mark = _within.set(entered)
        try:
            yield entered
        finally:
            _within.reset(mark)
            self.opened = None

    def _enter(self, kind: PhaseKind, pool: PoolKind) -> OpenPhase | None:
        with self._gate:
            if self.opened is None:
                iteration = self._entered.get(kind, 0)
                if kind in self._entered:
                    self._entered[kind] += 1
                self.opened = OpenPhase(kind, pool, iteration)
                return self.opened
            self._refuse_second(kind, pool, self.opened)
            return None

    def _refuse_second(self, kind: PhaseKind, pool: PoolKind, opened: OpenPhase) -> None:
        if _within.get() is not opened:
            raise PhaseError(
                f"a {kind} phase was called while {opened.kind} {opened.iteration} is open in another thread or task "
                f"of this process: a job holds one permit, so call one after the other"
            )
        if opened.pool is not pool:
            raise NestedPhaseError(
                f"a {kind} phase was called inside a phase of the {opened.pool} pool: it would hold one pool while it "
                f"waits for the other; end the outer phase first"
            )

    def _synced(self, report: "SyncReport") -> None:
        """A sync belongs to the training before it; one before the first training is part of the cold start."""
        num_trained = self._entered[PhaseKind.TRAINING]
        if num_trained > self._first_iteration:
            self._conductor.synced(num_trained - 1, report.microseconds, report.bytes)


class _Session:
    """The one job that this process is in."""

    def __init__(self) -> None:
        self.job: Job | None = None
        self.joining = threading.Lock()


_session = _Session()


def init() -> Job:
    """Join the job that the environment names, and return this process's handle; the same one on every call.

    Without an agent's environment the process runs alone. With ``WEAVERL_MODE=observe`` phases are measured and
    written to ``WEAVERL_OBSERVE_DIR`` (``weaverl-observe`` where it is unset), and no permit is asked.

    Raises:
        SpecError: the environment is incomplete.
        PhaseError: this process was started by one that is in the job already.
        StoreUnavailableError: the cluster's store does not answer.
    """
    with _session.joining:
        if _session.job is None:
            _session.job = _join()
        return _session.job


def current_job() -> Job:
    """The job of this process; it is joined if ``init`` was not called."""
    return _session.job or init()


def joined_job() -> Job | None:
    """The job of this process, if it was joined."""
    return _session.job


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
    _refuse_child(environment)
    store = RedisStore.from_url(environment.url, password=environment.password, prefix=environment.prefix)
    exchange = StoreExchange(store, environment)
    exchange.publish()
    return Job(environment, Permitted(store, environment, nodes_of(store, environment.slots)), exchange)


def _refuse_child(environment: RankEnvironment) -> None:
    """A child inherits our environment: it would write to the store under our name."""
    name = rank_name(environment.rank)
    pid, _, joined = os.environ.get("WEAVERL_JOINED", "").partition(" ")
    if joined == name and pid != str(os.getpid()):
        raise PhaseError(
            f"this process was started by process {pid}, which is {environment.rank} already: call weave.init() and "
            f"phases there only"
        )
    os.environ["WEAVERL_JOINED"] = f"{os.getpid()} {name}"
