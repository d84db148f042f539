"""``@weave.phase`` and ``weave.runtime_hook``: the few lines that weave a job."""

import functools
import inspect
from collections.abc import Callable
from types import CoroutineType, GeneratorType
from typing import Any, Literal, ParamSpec, TypeVar

from weaverl.domain.groups import pool_of
from weaverl.domain.jobs import PhaseKind
from weaverl.errors import PhaseError
from weaverl.runtime.session import current_job, joined_job

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

_YET_TO_RUN = (GeneratorType, CoroutineType)


def phase(
    kind: Literal["rollout", "training"], *, state: object = None
) -> Callable[[Callable[_Arguments, _Result]], Callable[_Arguments, _Result]]:
    """Make a function (or method, or asyncio coroutine) a phase of its job.

    Its calls wait for a permit, run with ``state`` on the job's devices, and give the permit back, also when they
    raise. Without a controller they are plain calls. The n-th call in a process belongs to iteration n.

    A process runs one phase at a time. Its threads and tasks may take turns, but a call while another one waits or
    runs is refused: a job holds one permit, and two of its phases could wait for each other for ever.

    Args:
        kind: ``rollout`` or ``training``.
        state: whatever must be on the devices meanwhile: modules, optimizers, tensors, containers or objects of them.

    Raises:
        PhaseError: the kind is unknown, or the function is a generator; from a call: a phase is open in another
            thread or task, the process has the other pool's role, or what was returned has yet to run.
        NestedPhaseError: from a call inside a phase of the other pool.
    """
    if kind not in ("rollout", "training"):
        raise PhaseError(f"phase kind is {kind!r}: it must be 'rollout' or 'training'")
    chosen = PhaseKind(kind)

    def decorate(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
        if state is not None:
            current_job().keep(state)
        made: Callable[_Arguments, _Result] = _phase(chosen, function)
        return made

    return decorate


def runtime_hook(done: int, total: int, tokens: int = 0) -> None:
    """Report progress within a rollout: responses finished, responses in all, tokens generated so far.

    Counts are since the phase began. It may be called from any thread; outside a phase it does nothing.
    """
    job = joined_job()
    opened = job.opened if job is not None else None
    if opened is not None:
        opened.done, opened.total, opened.tokens = done, total, tokens


def _phase(kind: PhaseKind, function: Any) -> Any:
    if isinstance(function, classmethod | staticmethod):
        return type(function)(_phase(kind, function.__func__))
    body = function if inspect.isroutine(function) or isinstance(function, functools.partial) else function.__call__
    if inspect.isgeneratorfunction(body) or inspect.isasyncgenfunction(body):
        raise PhaseError(f"{_name(function)} is a generator, which ends when its reader wants: wrap the loop")
    return _coroutine(kind, function) if inspect.iscoroutinefunction(body) else _call(kind, function)


def _call(kind: PhaseKind, function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    pool = pool_of(kind)

    @functools.wraps(function)
    def call(*arguments: _Arguments.args, **keywords: _Arguments.kwargs) -> _Result:
        with current_job().open_phase(kind, pool):
            result = function(*arguments, **keywords)
            if isinstance(result, _YET_TO_RUN):
                result.close()
                raise PhaseError(
                    f"{_name(function)} returned a {type(result).__name__}, which runs after the phase: make it "
                    f"`async def` itself, or return a list"
                )
            return result

    return call


def _coroutine(kind: PhaseKind, function: Callable[..., Any]) -> Callable[..., Any]:
    pool = pool_of(kind)

    @functools.wraps(function)
    async def call(*arguments: Any, **keywords: Any) -> Any:
        async with current_job().open_phase_off_loop(kind, pool):
            return await function(*arguments, **keywords)

    return call


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", repr(function))
