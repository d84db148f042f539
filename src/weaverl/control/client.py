"""How the command line speaks with the controller: a request goes into the event stream, its answer comes as a key."""

import time
import uuid
from pathlib import Path

import msgspec

from weaverl.channel import names
from weaverl.channel.redis import RedisStore
from weaverl.channel.sender import Sender
from weaverl.channel.store import Delete, Store, producer_key
from weaverl.control.delivery import Reply
from weaverl.control.rank_process import StoreAccess
from weaverl.control.status import ClusterStatus
from weaverl.domain.events import JobCancelled, JobSubmitted
from weaverl.domain.jobs import ENDED, JobSpec
from weaverl.errors import ControllerLostError, RefusedError

_REPLY_PATIENCE_SECONDS = 15.0


def connect(access: StoreAccess, patience_seconds: float = 5.0) -> RedisStore:
    """The store of a cluster."""
    password = Path(access.password_file).read_text() if access.password_file else None
    return RedisStore.from_url(access.url, password=password, prefix=access.prefix, patience_seconds=patience_seconds)


class Client:
    """Requests of one command."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def submit(self, spec: JobSpec) -> None:
        """Hand a job in. Raises RefusedError with the controller's reason, ControllerLostError without an answer."""
        request = uuid.uuid4().hex
        self._ask(JobSubmitted(spec=spec, request=request), request)

    def cancel(self, job: str) -> None:
        """Ask for a job's end. Raises as ``submit`` does."""
        request = uuid.uuid4().hex
        self._ask(JobCancelled(job=job, request=request), request)

    def status(self) -> ClusterStatus | None:
        """What the controller last published; None before it ever did."""
        published = self._store.get(names.STATUS)
        return None if published is None else msgspec.json.decode(published, type=ClusterStatus)

    def cancel_all(self, patience_seconds: float) -> None:
        """Cancel every job and wait for their ends, as long as the patience lasts."""
        status = self.status()
        for job in status.jobs if status else ():
            if job.state not in ENDED:
                try:
                    self.cancel(job.name)
                except RefusedError:
                    continue
        deadline = time.monotonic() + patience_seconds
        while time.monotonic() < deadline and (status := self.status()):
            if all(job.state in ENDED for job in status.jobs):
                return
            time.sleep(0.1)

    def _ask(self, event: JobSubmitted | JobCancelled, request: str) -> None:
        sender = Sender(self._store, f"request/{request}")
        sender.send(event)
        deadline = time.monotonic() + _REPLY_PATIENCE_SECONDS
        pause = 0.005
        while (answer := self._store.get(names.reply(request))) is None:
            if time.monotonic() > deadline:
                raise ControllerLostError(
                    f"the controller gave no answer in {_REPLY_PATIENCE_SECONDS:.0f} s; the request stands, and "
                    f"`weaverl status` will show what became of it"
                )
            time.sleep(pause)
            pause = min(pause * 1.5, 0.1)
        sender.commit([Delete(names.reply(request)), Delete(producer_key(f"request/{request}"))])
        reply = msgspec.json.decode(answer, type=Reply)
        if reply.refused:
            raise RefusedError(reply.refused)
