"""A long wait beside the event loop: its result reaches the task, or is given back."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from weaverl.runtime.off_loop import off_loop


class Waiting:
    """A call that returns when it is released, and what became of its result."""

    def __init__(self) -> None:
        self.release = threading.Event()
        self.abandoned: list[bool] = []
        self.given_back: list[str] = []

    def __call__(self) -> str:
        assert self.release.wait(5)
        return "permit"

    def start(self) -> asyncio.Task[str]:
        abandon: Callable[[], None] = lambda: self.abandoned.append(True)  # noqa: E731 - shorter than a def
        return asyncio.create_task(off_loop(self, abandon=abandon, give_back=self.given_back.append))

    def finish(self) -> None:
        self.release.set()
        for thread in threading.enumerate():
            if thread.name == "weaverl-wait":
                thread.join(5)


def test_the_result_and_the_error_reach_the_task():
    async def main() -> None:
        waiting = Waiting()
        task = waiting.start()
        await asyncio.sleep(0)
        waiting.release.set()
        assert await task == "permit"
        with pytest.raises(ZeroDivisionError):
            await off_loop(lambda: 1 / 0, abandon=lambda: None, give_back=lambda result: None)
        assert waiting.given_back == waiting.abandoned == []

    asyncio.run(main())


def test_a_result_that_comes_after_the_task_was_cancelled_is_given_back():
    async def main() -> None:
        waiting = Waiting()
        task = waiting.start()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert waiting.abandoned == [True]
        waiting.finish()
        assert waiting.given_back == ["permit"]

    asyncio.run(main())


def test_a_result_that_the_loop_has_yet_to_see_when_the_task_is_cancelled_is_given_back():
    async def main() -> None:
        waiting = Waiting()
        task = waiting.start()
        await asyncio.sleep(0)
        waiting.finish()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert waiting.given_back == ["permit"]

    asyncio.run(main())
