"""A whole cluster in this process: a store in memory, a real controller in a thread, ranks played by the test."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from weaverl.channel import names
from weaverl.channel.memory import InMemoryStore
from weaverl.channel.sender import Sender
from weaverl.channel.store import START, Append, Put
from weaverl.channel.wire import decode_command, decode_event, encode_command
from weaverl.control.controller import Controller
from weaverl.control.recovery import read_facts
from weaverl.domain.cluster import Cluster, Node, Pool, PoolKind
from weaverl.domain.commands import AnyCommand, GrantPermit, StartRank, VacateSlot
from weaverl.domain.events import AgentReported, AnyEvent, JobCancelled, JobSubmitted, RankId
from weaverl.domain.jobs import HostMemory, JobSpec, PhaseKind, PhaseProfile, Placement, Role
from weaverl.runtime.conductors import Permitted
from weaverl.runtime.environment import RankEnvironment
from weaverl.runtime.session import Job
from weaverl.scheduling.state import Parameters

MIB = 1 << 20
PATIENCE_SECONDS = 10.0


def node_of(name: str, *, device_memory_bytes: int = MIB, devices: int = 1, cpus: tuple[int, ...] = ()) -> Node:
    return Node(
        name=name,
        pool=PoolKind.ROLLOUT if name.startswith("r") else PoolKind.TRAINING,
        host="here",
        num_devices=devices,
        device_memory_bytes=device_memory_bytes,
        host_memory_bytes=1 << 40,
        cpus=cpus,
        accelerator="cpu",
    )


def spec_of(name: str, *, local: bool = False, gpus: int = 1, processes: int = 1) -> JobSpec:
    roles = ("run",) if local else ("driver", "rollout", "training")
    return JobSpec(
        name=name,
        roles=tuple(
            Role(name=role, command=("true",), processes_per_node=1 if role == "driver" else processes)
            for role in roles
        ),
        rollout_gpus=gpus,
        training_gpus=gpus,
        host_memory=HostMemory(rollout_bytes=MIB, training_bytes=MIB),
        slo=9.0,
        placement=Placement.LOCAL if local else Placement.DISAGGREGATED,
        profile=PhaseProfile(rollout_max_seconds=1.0, rollout_mean_seconds=1.0, training_seconds=1.0),
    )


class InProcessCluster:
    """The cluster. Everything that happened is in the log, so tests ask that."""

    def __init__(self, ledger: Path, *nodes: Node, parameters: Parameters = Parameters()) -> None:
        self.ledger = ledger
        self.parameters = parameters
        self.nodes = {node.name: node for node in nodes or (node_of("r0"), node_of("t0"))}
        self.cluster = Cluster(
            name="test",
            rollout=Pool(kind=PoolKind.ROLLOUT, gpu="H20", usd_per_gpu_hour=1.85),
            training=Pool(kind=PoolKind.TRAINING, gpu="H800", usd_per_gpu_hour=5.28),
            nodes=tuple(self.nodes.values()),
        )
        self.store = InMemoryStore()
        self._sender = Sender(self.store, "test")
        self._conductors: list[Permitted] = []
        self._ranks: list[RankId] = []
        self._controllers = 0
        self.start_controller()

    def start_controller(self) -> None:
        """Have a controller lead, and the agents report to it."""
        before = self.store.get(names.EPOCH)
        self._controllers += 1
        self._stop = threading.Event()
        controller = Controller(self.store, self.cluster, f"controller-{self._controllers}", self.parameters)
        self._thread = threading.Thread(target=controller.run, args=(self._stop,), daemon=True)
        self._thread.start()
        self.until(lambda: self.store.get(names.EPOCH) != before)
        epoch = int(self.store.get(names.EPOCH) or 0)
        for name, node in self.nodes.items():
            alive = tuple(rank for rank in self._ranks if self._start_of(rank).node == name)
            record = Put(names.node_record(name), msgspec.json.encode(node))
            self._sender.send(AgentReported(epoch=epoch, node=node, alive=alive), record)

    def stop_controller(self) -> None:
        self._stop.set()
        self._thread.join()

    def submit(self, *specs: JobSpec) -> None:
        """Hand jobs in, and wait until their ranks are to be started."""
        for spec in specs:
            self._sender.send(JobSubmitted(spec=spec))
        self.until(lambda: {spec.name for spec in specs} <= {start.rank.job for start in self.commands(StartRank)})

    def rank(self, job: str, role: str = "run", number: int = 0, *, outage_patience_seconds: float = 60.0) -> Job:
        """Play a rank that an agent was told to start."""
        rank = RankId(job, 1, role, number)
        start = self._start_of(rank)
        environment = RankEnvironment(
            url="",
            password=None,
            rank=rank,
            world_size=start.world_size,
            role_sizes=start.role_sizes,
            node=start.node,
            slots=start.slots,
            ledger=self.ledger,
            host_bytes=None,
            prefix="weaverl:",
            master=("", 0),
            master_fd=None,
        )
        nodes = {slot.node: self.nodes[slot.node] for slot in start.slots}
        conductor = Permitted(self.store, environment, nodes, outage_patience_seconds)
        self._conductors.append(conductor)
        self._ranks.append(rank)
        return Job(environment, conductor)

    def end(self, job: str) -> None:
        """A job that has ended asks for nothing more: nobody waits for its turn."""
        self._sender.send(JobCancelled(job=job))

    def revoke(self, job: str) -> None:
        """What the controller writes before it has an attempt killed."""
        self._sender.commit([Put(names.revoked(job, 1), b"1")])

    def forge(self, inbox_of: RankId, command: AnyCommand) -> None:
        """Send a rank a command that the controller did not decide on."""
        self._sender.commit([Append(names.rank_inbox(inbox_of), encode_command(command))])

    def told(self, kind: type[AnyEvent]) -> list:
        """Events of a kind that were sent to the controller, also while none led."""
        while True:
            cursor = self.store.get(names.CURSOR)
            waiting = self.store.read(names.EVENTS, (cursor or START.encode()).decode())
            events = [fact.event for fact in read_facts(self.store)] + [decode_event(entry.data) for entry in waiting]
            if self.store.get(names.CURSOR) == cursor:
                return [event for event in events if isinstance(event, kind)]

    def commands(self, kind: type[AnyCommand]) -> list:
        """Commands of a kind that were decided, in order."""
        return [one for fact in read_facts(self.store) for one in fact.commands if isinstance(one, kind)]

    def grants(self) -> list[tuple[str, PhaseKind, int]]:
        """Every permit granted: job, phase and iteration."""
        return [(grant.job, grant.phase, grant.iteration) for grant in self.commands(GrantPermit)]

    def story(self) -> list[tuple[str, str, object]]:
        """Grants, demands to vacate and what ranks answered: kind, job, token."""
        found = []
        for fact in read_facts(self.store):
            token = getattr(fact.event, "token", None)
            if token is not None:
                found.append((type(fact.event).__name__, fact.event.rank.job, token))
            found += [
                (type(one).__name__, one.job, one.token)
                for one in fact.commands
                if isinstance(one, GrantPermit | VacateSlot)
            ]
        return found

    def inbox(self, rank: RankId) -> list[AnyCommand]:
        entries = self.store.read(names.rank_inbox(rank), START, limit=1 << 20)
        return [decode_command(entry.data) for entry in entries]

    @staticmethod
    def until(holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not holds():
            assert time.monotonic() < deadline, "it did not come to that"
            time.sleep(0.002)

    def close(self) -> None:
        self._stop.set()
        for conductor in self._conductors:
            conductor.close()

    def _start_of(self, rank: RankId) -> StartRank:
        return next(start for start in self.commands(StartRank) if start.rank == rank)


class Worker:
    """A thread whose outcome the test asks for."""

    def __init__(self, work: Callable[[], object]) -> None:
        self.error: BaseException | None = None
        self._result: object = None
        self._work = work
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def result(self) -> object:
        self._thread.join(PATIENCE_SECONDS)
        assert not self._thread.is_alive(), "it is still at work"
        if self.error is not None:
            raise self.error
        return self._result

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._result = self._work()
        except BaseException as error:  # noqa: BLE001 - the test gets it
            self.error = error
