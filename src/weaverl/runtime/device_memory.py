"""Device memory of a host as a ledger that all its processes share: who holds how much on which slot.

On a CPU node the ledger is the device: a budget that is enforced, so that sharing is real without a GPU. On a
CUDA node it only records, the device enforces. One file a host, replaced whole under a file lock: a process killed
at any moment leaves it usable, and what a dead process held does not count.
"""

import fcntl
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from weaverl.channel.process_start import boot_id, start_ticks
from weaverl.domain.cluster import Slot
from weaverl.errors import ClusterError, DeviceMemoryError


class Holder(msgspec.Struct, frozen=True):
    """A process that holds memory of a slot, for one purpose. ``started`` is its start in clock ticks since boot."""

    slot: Slot
    pid: int
    started: int
    nbytes: int
    purpose: str = ""


class _Peak(msgspec.Struct, frozen=True):
    slot: Slot
    nbytes: int


class _Ledger(msgspec.Struct, frozen=True):
    boot: str
    holders: tuple[Holder, ...] = ()
    peaks: tuple[_Peak, ...] = ()


class DeviceMemory:
    """The ledger of one host, in a directory that all its agents and ranks are given.

    ``budgets`` has the bytes of each device by node; a node without one only records.
    """

    def __init__(self, directory: Path, budgets: Mapping[str, int]) -> None:
        self._budgets = budgets
        self._path = directory / "device-memory.json"
        self._lock_path = directory / "device-memory.lock"

    def hold(self, purpose: str, wanted: Mapping[Slot, int]) -> None:
        """Make ``wanted`` all that this process holds for a purpose, on several slots all or nothing.

        Asking again changes nothing. DeviceMemoryError, and nothing changes, if a budget would be exceeded.
        """
        self._change(purpose, lambda held: wanted)

    def reserve(self, slot: Slot, nbytes: int, purpose: str = "") -> None:
        """Hold so many more bytes of a slot; DeviceMemoryError, and nothing changes, if they are not free."""
        self._change(purpose, lambda held: {**held, slot: held.get(slot, 0) + nbytes})

    def release(self, slot: Slot, nbytes: int, purpose: str = "") -> None:
        """Hold so many bytes less of a slot."""
        self._change(purpose, lambda held: {**held, slot: max(0, held.get(slot, 0) - nbytes)})

    def _change(self, purpose: str, change: Callable[[Mapping[Slot, int]], Mapping[Slot, int]]) -> None:
        pid = os.getpid()
        started = start_ticks(pid)
        assert started is not None, "this process is alive"
        with self._locked() as ledger:
            others = [holder for holder in ledger.holders if (holder.pid, holder.purpose) != (pid, purpose)]
            before = {holder.slot: holder.nbytes for holder in ledger.holders if holder not in others}
            wanted = change(before)
            for slot, nbytes in wanted.items():
                self._check_budget(slot, nbytes, before.get(slot, 0), others)
            mine = [Holder(slot, pid, started, nbytes, purpose) for slot, nbytes in wanted.items() if nbytes]
            self._write(ledger, (*others, *mine))

    def holders(self, slot: Slot) -> tuple[Holder, ...]:
        """Living processes that hold memory of a slot."""
        return tuple(holder for holder in self._read().holders if holder.slot == slot)

    def held_bytes(self, slot: Slot) -> int:
        """Bytes of a slot that living processes hold."""
        return sum(holder.nbytes for holder in self.holders(slot))

    def peak_bytes(self, slot: Slot) -> int:
        """The most bytes of a slot that were ever held at once."""
        return next((peak.nbytes for peak in self._read().peaks if peak.slot == slot), 0)

    def _check_budget(self, slot: Slot, nbytes: int, before: int, others: Iterable[Holder]) -> None:
        budget = self._budgets.get(slot.node)
        here = [holder for holder in others if holder.slot == slot]
        held = sum(holder.nbytes for holder in here)
        if budget is None or nbytes <= before or held + nbytes <= budget:
            return
        names = [f"pid {holder.pid} ({_mib(holder.nbytes)})" for holder in here]
        names += [f"this process ({_mib(before)})"] if before else []
        raise DeviceMemoryError(
            f"needs {_mib(nbytes - before)} on {slot}, {_mib(budget - held - before)} free of {_mib(budget)}: "
            f"held by {', '.join(names) or 'nobody'}"
        )

    @contextmanager
    def _locked(self) -> Iterator[_Ledger]:
        with self._lock_path.open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield self._read()

    def _read(self) -> _Ledger:
        boot = boot_id()
        try:
            ledger = msgspec.json.decode(self._path.read_bytes(), type=_Ledger)
        except FileNotFoundError:
            return _Ledger(boot)
        except msgspec.MsgspecError as error:
            raise ClusterError(f"the device-memory ledger {self._path} is damaged ({error}): remove it") from error
        if ledger.boot != boot:
            return _Ledger(boot)
        return msgspec.structs.replace(ledger, holders=tuple(filter(_is_alive, ledger.holders)))

    def _write(self, before: _Ledger, holders: tuple[Holder, ...]) -> None:
        peaks = {peak.slot: peak.nbytes for peak in before.peaks}
        for slot in {holder.slot for holder in holders}:
            held = sum(holder.nbytes for holder in holders if holder.slot == slot)
            peaks[slot] = max(peaks.get(slot, 0), held)
        ledger = _Ledger(before.boot, holders, tuple(_Peak(slot, nbytes) for slot, nbytes in sorted(peaks.items())))
        fresh = self._path.with_suffix(".new")
        fresh.write_bytes(msgspec.json.encode(ledger))
        fresh.replace(self._path)


def _is_alive(holder: Holder) -> bool:
    return start_ticks(holder.pid) == holder.started


def _mib(nbytes: int) -> str:
    return f"{nbytes / (1 << 20):.1f} MiB"
