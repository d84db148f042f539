"""``@weave.phase`` and ``weave.runtime_hook``: the few lines that weave a job."""

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal, ParamSpec, TypeVar

from weaverl.domain.cluster import PoolKind
from weaverl.domain.groups import pool_of
from weaverl.domain.jobs import PhaseKind
from weaverl.errors import NestedPhaseError, PhaseError
from weaverl.runtime.conductors import Progress
from weaverl.runtime.session import Job, current_job

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

_open: ContextVar[tuple[PoolKind, Progress] | None] = ContextVar("weaverl_open_phase", default=None)


def phase(
    kind: Literal["rollout", "training"], *, state: object = None
) -> Callable[[Callable[_Arguments, _Result]], Callable[_Arguments, _Result]]:
    """Make a function (or method, or coroutine) a phase of its job.

    Its calls wait for a permit, run with ``state`` on the job's devices, and give the permit back, also when they
    raise. Without a controller they are plain calls. The n-th call in a process belongs to iteration n.

    Args:
        kind: ``rollout`` or ``training``.
        state: whatever must be on the devices meanwhile: modules, optimizers, tensors, containers or objects of them.

    Raises:
        PhaseError: the kind is unknown, or the function is a generator.
        NestedPhaseError: from a call inside a phase of the other pool.
    """
    if kind not in ("rollout", "training"):
        raise PhaseError(f"phase kind is {kind!r}: it must be 'rollout' or 'training'")
    chosen = PhaseKind(kind)

    def decorate(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise PhaseError(f"{function.__qualname__} is a generator, which ends when its reader wants: wrap the loop")
        if state is not None:
            current_job().keep(state)
        if inspect.iscoroutinefunction(function):
            return _coroutine(chosen, function)

        @functools.wraps(function)
        def call(*arguments: _Arguments.args, **keywords: _Arguments.kwargs) -> _Result:
            with _phase(current_job(), chosen):
                return function(*arguments, **keywords)

        return call

    return decorate


def runtime_hook(done: int, total: int, tokens: int = 0) -> None:
    """Report progress within a rollout: responses finished, responses in all, tokens generated so far.

    Counts are since the phase began. Outside a phase it is a plain call that does nothing.
    """
    opened = _open.get()
    if opened is not None:
        progress = opened[1]
        progress.done, progress.total, progress.tokens = done, total, tokens


def _coroutine(kind: PhaseKind, function: Callable[..., Any]) -> Callable[..., Any]:
    """A coroutine's permit is waited for in the thread of its loop: nothing of the loop may touch state meanwhile."""

    @functools.wraps(function)
    async def call(*arguments: Any, **keywords: Any) -> Any:
        with _phase(current_job(), kind):
            return await function(*arguments, **keywords)

    return call


@contextmanager
def _phase(job: Job, kind: PhaseKind) -> Iterator[None]:
    pool = pool_of(kind)
    opened = _open.get()
    if opened is not None:
        if opened[0] is not pool:
            raise NestedPhaseError(
                f"a {kind} phase was opened inside a phase of the {opened[0]} pool: it would hold one pool while it "
                f"waits for the other; end the outer phase first"
            )
        yield
        return
    progress = Progress()
    mark = _open.set((pool, progress))
    try:
        with job.open_phase(kind, pool, progress):
            yield
    finally:
        _open.reset(mark)
