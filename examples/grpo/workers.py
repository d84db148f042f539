"""The driver's line to its workers: calls of functions that may live in other processes.

Real frameworks bring their own (Ray actors, for one). This one is a page: objects over torch.distributed, point to
point between the driver and the first rank of each role. Where there is only one process, a call is a call.
"""

from collections.abc import Callable
from typing import Any

import torch.distributed as dist

import weaverl as weave


class Workers:
    """Functions by role. The driver calls them; each worker serves those that it offers."""

    def __init__(self, job: weave.Job) -> None:
        self._job = job
        self._functions: dict[str, dict[str, Callable[..., Any]]] = {}
        self._local_results: dict[str, Any] = {}
        self._apart = len(job.role_sizes) > 1

    def offer(self, role: str, **functions: Callable[..., Any]) -> None:
        """Functions of a role, in the process that has it."""
        self._functions[role] = functions

    def call(self, role: str, name: str, *arguments: object) -> Any:
        """Run a function of a role there, and return its result."""
        self.start(role, name, *arguments)
        return self.result(role)

    def start(self, role: str, name: str, *arguments: object) -> None:
        """Have a function of a role run there; ``result`` waits for what it returns."""
        self._meet()
        if self._apart:
            dist.send_object_list([(name, arguments)], dst=self._job.meeting.rank_of(role))
        else:
            self._local_results[role] = self._functions[role][name](*arguments)

    def result(self, role: str) -> Any:
        """What the function started last in a role returned."""
        if not self._apart:
            return self._local_results.pop(role)
        answer = [None]
        dist.recv_object_list(answer, src=self._job.meeting.rank_of(role))
        return answer[0]

    def serve(self) -> None:
        """Run what the driver asks for until it says that all is done."""
        self._meet()
        driver = self._job.meeting.rank_of("driver")
        while True:
            request: list[Any] = [None]
            dist.recv_object_list(request, src=driver)
            if request[0] is None:
                break
            name, arguments = request[0]
            result = self._functions[self._job.role][name](*arguments)
            dist.send_object_list([result], dst=driver)
        dist.destroy_process_group()

    def close(self) -> None:
        """Tell the workers that all is done."""
        if self._apart:
            for role in ("rollout", "training"):
                dist.send_object_list([None], dst=self._job.meeting.rank_of(role))
            dist.destroy_process_group()

    def _meet(self) -> None:
        """Join the other processes, once state is loaded and if there are any."""
        if self._apart and not dist.is_initialized():
            self._job.meeting.join_process_group()
