"""The traces that a reproduction runs on: files of a folder, or the generator's."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from weaverl.errors import UsageError
from weaverl.simulation.costs import Costs
from weaverl.simulation.reproduction.variations import shortened
from weaverl.simulation.traces.generate import Drift, Order, Preset, generate
from weaverl.simulation.traces.read import read_trace
from weaverl.simulation.traces.records import Trace

DRIFTS = ("increasing", "decreasing", "mixed")
NUM_SEEDS = 3


class Sources(msgspec.Struct, frozen=True, kw_only=True):
    """All traces; ``drifted`` by kind of drift. ``origin`` says where they are from."""

    origin: str
    production: tuple[Trace, ...]
    philly: tuple[Trace, ...]
    drifted: dict[str, tuple[Trace, ...]]


def generated(num_seeds: int = NUM_SEEDS) -> Sources:
    """The generator's traces: anybody can make them."""

    def made(preset: Preset, drift: Drift = Drift.NONE) -> tuple[Trace, ...]:
        return tuple(generate(Order(preset=preset, seed=seed, drift=drift), Costs()) for seed in range(num_seeds))

    return Sources(
        origin=f"weaverl's generator, presets {Preset.PRODUCTION} and {Preset.PHILLY_LIKE}, {num_seeds} seeds",
        production=made(Preset.PRODUCTION),
        philly=made(Preset.PHILLY_LIKE),
        drifted={kind: made(Preset.PRODUCTION, Drift(kind)) for kind in DRIFTS},
    )


def from_folder(folder: Path) -> Sources:
    """`production-*-s*.csv`, `production-*-increasing-s*.csv` and so on, `philly-*-s*.csv`.

    Raises:
        UsageError: no such folder, or a kind of trace is not in it.
    """
    if not folder.is_dir():
        raise UsageError(f"--traces {folder} is not a folder; leave it out for generated traces")
    return Sources(
        origin=f"files of {folder}",
        production=_read(folder, "production-[0-9]*-s*.csv", DRIFTS),
        philly=_read(folder, "philly-*-s*.csv"),
        drifted={kind: _read(folder, f"production-*-{kind}-s*.csv") for kind in DRIFTS},
    )


def quick(sources: Sources, factor: float) -> Sources:
    """One trace of each kind, shortened."""

    def short(traces: Sequence[Trace]) -> tuple[Trace, ...]:
        return (shortened(traces[0], factor),)

    return Sources(
        origin=f"{sources.origin}; the first of each kind, iterations, arrivals and cold starts over {factor:g}",
        production=short(sources.production),
        philly=short(sources.philly),
        drifted={kind: short(traces) for kind, traces in sources.drifted.items()},
    )


def _read(folder: Path, pattern: str, without: Sequence[str] = ()) -> tuple[Trace, ...]:
    paths = [path for path in sorted(folder.glob(pattern)) if not any(f"-{word}-" in path.name for word in without)]
    if not paths:
        raise UsageError(f"--traces {folder} has no {pattern}; leave it out for generated traces")
    return tuple(read_trace(path) for path in paths)
