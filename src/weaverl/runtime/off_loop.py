"""Waiting for a long call without holding up the event loop."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

_Result = TypeVar("_Result")


async def off_loop(
    wait: Callable[[], _Result], *, abandon: Callable[[], object], give_back: Callable[[_Result], None]
) -> _Result:
    """What ``wait`` returns, waited for in a thread of its own, so that the loop goes on.

    When the task is cancelled ``abandon`` is called to end the wait; a result that comes all the same is given back.
    The thread is a daemon: a process that is told to end does not stay for it, as it would for an executor's.
    """
    outcome: Future[_Result] = Future()

    def run() -> None:
        try:
            result = wait()
        except BaseException as error:  # noqa: BLE001 - the thread's outermost call: the task gets it
            if outcome.set_running_or_notify_cancel():
                outcome.set_exception(error)
            return
        if outcome.set_running_or_notify_cancel():
            outcome.set_result(result)
        else:
            give_back(result)

    threading.Thread(target=run, name="weaverl-wait", daemon=True).start()
    try:
        return await asyncio.wrap_future(outcome)
    except asyncio.CancelledError:
        abandon()
        if not outcome.cancel() and outcome.exception() is None:
            give_back(outcome.result())
        raise
