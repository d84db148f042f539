"""Iterations of runs from the timing logs that people have: how long each rollout, training and sync took.

What counts as what is the table of ``timing_keys``; shapes of files are ``timing_formats``'. Iterations at the start
warm up and are left out.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean, pstdev

import msgspec

from weaverl.domain.jobs import PhaseProfile
from weaverl.errors import UsageError
from weaverl.scheduling.round_model import MICROSECONDS, Durations
from weaverl.simulation.timing_formats import Reading, read_log
from weaverl.simulation.timing_keys import FRAMEWORKS, Framework
from weaverl.simulation.timing_setup import Setup, setup_of

WARM_UP = 2
FEWEST = 3
"""So many iterations are kept at least; a log with fewer says too little."""
REPEATED = "a step that was logged again"
NO_ROLLOUT = "a step without a rollout time"
NO_TRAINING = "a step without a training time"
WARMING = "warm-up"

_GENERIC_NAMES = frozenset({"trainer_state", "train", "training", "log", "metrics", "output", "stdout", "history"})
_NOT_NAME = re.compile(r"[^a-z0-9]+")


class Iteration(msgspec.Struct, frozen=True):
    """Seconds of one iteration."""

    rollout: float
    training: float
    sync: float
    other: float

    @property
    def solo(self) -> float:
        """All of it."""
        return self.rollout + self.training + self.sync + self.other


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A run as its logs tell. ``skipped`` counts what was left out, by reason.

    ``overlapped``: rollout and training overlap already, so that there is little for weaving to fill. ``apart``:
    rollout times and step times were logged apart, so that only rollouts are known one by one.
    """

    name: str
    source: str
    framework: str
    iterations: tuple[Iteration, ...]
    skipped: dict[str, int]
    overlapped: bool = False
    apart: bool = False
    setup: Setup = Setup()

    @property
    def logged_sync(self) -> bool:
        """Whether the log has the time of a sync between pools; on the same GPUs it crosses no link."""
        return not self.setup.colocated and any(one.sync for one in self.iterations)

    def on_two_pools(self, rollout_scale: float, training_scale: float, sync_seconds: float) -> "Run":
        """The run on disaggregated pools: phases scaled, and the sync given where none over a link was logged."""
        logged = self.logged_sync
        iterations = tuple(
            Iteration(
                one.rollout * rollout_scale,
                one.training * training_scale,
                one.sync if logged else sync_seconds,
                one.other,
            )
            for one in self.iterations
        )
        return msgspec.structs.replace(self, iterations=iterations)

    def durations(self) -> tuple[Durations, ...]:
        """Microseconds of each iteration's phases."""
        return tuple(
            Durations(*(round(seconds * MICROSECONDS) for seconds in (one.rollout, one.training, one.sync, one.other)))
            for one in self.iterations
        )

    def profile(self) -> PhaseProfile:
        """The longest rollout for planning, means of the rest."""
        rollouts = [one.rollout for one in self.iterations]
        mean = fmean(rollouts)
        return PhaseProfile(
            rollout_max_seconds=max(rollouts),
            rollout_mean_seconds=mean,
            rollout_cv=pstdev(rollouts) / mean,
            training_seconds=fmean(one.training for one in self.iterations),
            sync_seconds=fmean(one.sync for one in self.iterations),
            other_seconds=fmean(one.other for one in self.iterations),
        )


class LogSource(msgspec.Struct, frozen=True):
    """A log to read, and what to call its run; without a name, as its file or folder."""

    path: Path
    name: str = ""


class _Gathered(msgspec.Struct):
    """Everything that the files have of one run."""

    source: LogSource
    readings: list[Reading] = []
    skipped: Counter[str] = msgspec.field(default_factory=Counter)
    console: str = ""


def read_runs(sources: Sequence[LogSource], warm_up: int = WARM_UP) -> list[Run]:
    """The runs of all files, in order of their first mention; W&B exports of one run in several files are joined.

    Raises UsageError for a damaged file, and for a run whose phases cannot be told apart.
    """
    gathered: dict[str, _Gathered] = {}
    for source, name in zip(sources, _names(sources), strict=True):
        log = read_log(source.path)
        if not log.readings:
            raise UsageError(
                f"{source.path} has no timings: it needs lines or columns such as timing_s/gen and "
                f"timing_s/update_actor (veRL), timing/generation (OpenRLHF), perf/rollout_time (slime), "
                f"time/step_generate (ROLL)"
            )
        runs = {one.run: source.name or (_plain_name(one.run) if one.run else name) for one in log.readings}
        if source.name and len(runs) > 1:
            several = ", ".join(sorted(runs))
            raise UsageError(f"{source.path} holds {len(runs)} runs ({several}): leave {source.name}= out")
        for run in runs.values():
            gathered.setdefault(run, _Gathered(source, console=log.console)).skipped += log.skipped
        for reading in log.readings:
            gathered[runs[reading.run]].readings.append(reading)
    return [_run(name, found, warm_up) for name, found in gathered.items()]


def _run(name: str, found: _Gathered, warm_up: int) -> Run:
    source, skipped = found.source.path, found.skipped
    framework = _framework_of(found.readings)
    iterations, apart = _iterations(source, framework, found.readings, skipped)
    if len(iterations) < FEWEST:
        problem = f"{len(iterations)} iterations of {name} have all their times"
        raise UsageError(f"{source}: {problem}: give a log with {FEWEST} or more")
    dropped = max(min(warm_up, len(iterations) - FEWEST), 0)
    skipped[WARMING] += dropped
    setup = setup_of(found.console)
    return Run(
        name=name,
        source=str(source),
        framework=framework.name,
        iterations=tuple(iterations[dropped:]),
        skipped={reason: times for reason, times in skipped.items() if times},
        overlapped=any(key in one.seconds for one in found.readings for key in framework.overlapped),
        apart=apart,
        setup=setup,
    )


def _framework_of(readings: Iterable[Reading]) -> Framework:
    """The one that most timings are of."""
    keys = Counter(key for reading in readings for key in reading.seconds)
    return max(FRAMEWORKS, key=lambda framework: sum(keys[key] for key in framework.keys))


def _iterations(
    source: Path, framework: Framework, readings: list[Reading], skipped: Counter[str]
) -> tuple[list[Iteration], bool]:
    """Iterations in order, and whether rollouts and step times were logged apart."""
    steps = _by_step(readings, skipped)
    rollouts = [step for step in steps if _first(framework.rollout, step) is not None]
    if not rollouts:
        wanted = " or ".join(_as_logged(keys[0]) for keys in framework.rollout)
        raise UsageError(f"{source}: no rollout times among those of {framework.name}: log or export {wanted} too")
    together = [one for step in rollouts if (one := _iteration(framework, step)) is not None]
    if together:
        skipped[NO_ROLLOUT] += len(steps) - len(rollouts)
        skipped[NO_TRAINING] += len(rollouts) - len(together)
        return together, False
    return _apart(source, framework, steps, rollouts), True


def _by_step(readings: list[Reading], skipped: Counter[str]) -> list[dict[str, float]]:
    """Timings of each step, in order; of one that was logged again the later, as after a restart."""
    steps: dict[tuple[int, int], dict[str, float]] = {}
    for reading in readings:
        key = (0, reading.step) if reading.step is not None else (1, reading.line)
        before = steps.setdefault(key, {})
        skipped[REPEATED] += bool(before.keys() & reading.seconds.keys())
        before.update(reading.seconds)
    return [steps[key] for key in sorted(steps)]


def _iteration(framework: Framework, step: dict[str, float]) -> Iteration | None:
    """One step's iteration, or None if its training cannot be told."""
    rollout = _first(framework.rollout, step) or 0.0
    training = _first(framework.training, step)
    sync, named = _sum(framework.sync, step), _sum(framework.other, step)
    total = _sum(framework.total, step) if any(key in step for key in framework.total) else None
    if framework.training:
        other = named if total is None else max(total - rollout - (training or 0.0) - sync, 0.0)
    else:
        training, other = None if total is None else total - rollout - sync - named, named
    return Iteration(rollout, training, sync, other) if training and training > 0 and rollout > 0 else None


def _apart(
    source: Path, framework: Framework, steps: list[dict[str, float]], rollouts: list[dict[str, float]]
) -> list[Iteration]:
    """Each rollout with the means of what was logged apart from it: all seconds over the number of rollouts."""
    sums: dict[str, float] = defaultdict(float)
    for step in steps:
        for key, seconds in step.items():
            sums[key] += seconds / len(rollouts)
    mean = _iteration(framework, sums)
    if mean is None:
        wanted = " or ".join(framework.total + tuple(keys[-1] for keys in framework.training))
        problem = f"no training times beside the rollouts of {framework.name}"
        raise UsageError(f"{source}: {problem}: log or export {wanted} too")
    each = (_first(framework.rollout, step) or 0.0 for step in rollouts)
    return [Iteration(rollout, mean.training, mean.sync, mean.other) for rollout in each if rollout > 0]


def _as_logged(key: str) -> str:
    """A key as its framework writes it."""
    return key.replace("profiling/", "profiling/Time taken: GRPOTrainer.")


def _first(alternatives: tuple[tuple[str, ...], ...], step: dict[str, float]) -> float | None:
    """Sum of the first alternative that has a key there."""
    return next((_sum(keys, step) for keys in alternatives if any(key in step for key in keys)), None)


def _sum(keys: tuple[str, ...], step: dict[str, float]) -> float:
    return sum(step.get(key, 0.0) for key in keys)


def _names(sources: Sequence[LogSource]) -> list[str]:
    """A name for each file: its own, or its folder's where that says nothing or two are alike; each once."""
    stems = [_plain_name(source.path.stem) for source in sources]
    alike = Counter(stems)
    names: list[str] = []
    for source, stem in zip(sources, stems, strict=True):
        plain = source.path.stem.lower() not in _GENERIC_NAMES and alike[stem] == 1
        name = stem if plain else _plain_name(source.path.absolute().parent.name)
        names.append(name if name not in names else f"{name}-{len(names) + 1}")
    return names


def _plain_name(text: str) -> str:
    """A text as a job's name."""
    return _NOT_NAME.sub("-", text.lower()).strip("-")[:60].strip("-") or "run"
