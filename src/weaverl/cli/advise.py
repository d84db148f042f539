"""`weaverl advise`: what jobs would save woven, from the timing logs that their owners already have."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from weaverl.errors import UsageError

if TYPE_CHECKING:
    from weaverl.domain.cluster import Cluster
    from weaverl.simulation.advice import AdvisedJob
    from weaverl.simulation.costs import Costs
    from weaverl.simulation.timing_logs import Run

_WITH_OPTIONS = re.compile(r"^(?P<log>.*?)(?::(?P<options>\w+=[^:,=]+(?:,\w+=[^:,=]+)*))?$", re.DOTALL)
_NAMED = re.compile(r"^(?P<name>[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)=(?P<log>.+)$", re.DOTALL)
_OPTIONS = ("rollout", "training", "model", "slo")
_MODEL_UNKNOWN = "7"


class LogArgument(msgspec.Struct, frozen=True, kw_only=True):
    """``[NAME=]LOG[:rollout=8,training=8,model=7,slo=1.5]`` as given."""

    path: Path
    name: str = ""
    rollout_gpus: int | None = None
    training_gpus: int | None = None
    model: str | None = None
    slo: float | None = None


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(advise)


def advise(
    logs: Annotated[
        list[str],
        typer.Argument(
            metavar="LOG...",
            help="Logs of one run each, or W&B exports of several: [NAME=]LOG[:rollout=8,training=8,model=7,slo=1.5].",
            show_default=False,
        ),
    ],
    gpus: Annotated[
        str | None, typer.Option(metavar="ROLLOUT,TRAINING", help="GPUs of the jobs whose log does not say.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Model of the jobs, for host memory and sync; by name or billions.")
    ] = None,
    slo: Annotated[float, typer.Option(min=1, help="Slowdown that a job may have.")] = 1.5,
    warm_up: Annotated[int, typer.Option(min=0, help="Iterations to leave out at the start of each run.")] = 2,
    rollout_scale: Annotated[
        float, typer.Option(min=0.01, help="Rollout time on the rollout pool's GPUs over the time measured.")
    ] = 1.0,
    training_scale: Annotated[float, typer.Option(min=0.01, help="The same for training.")] = 1.0,
    link_gbps: Annotated[
        float, typer.Option(min=0.001, help="Link between the pools, where no sync was logged.")
    ] = 20.0,
    cluster: Annotated[
        Path | None,
        typer.Option(help="Cluster file for prices, switch times and node sizes; as many nodes as it takes."),
    ] = None,
    gantt: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the woven rounds as SVG.")] = None,
    as_json: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the figures as JSON; - is standard output.")
    ] = None,
) -> None:
    """Say what jobs would save woven, from their timing logs: on which nodes, at what slowdown, and why if nothing.

    Reads veRL (console, JSON lines), TRL, OpenRLHF, slime and ROLL logs, and CSV exports of W&B. Nothing is installed
    or changed anywhere.
    """
    import sys

    from weaverl.cli.advise_view import figures_of, gantt_of, print_advice
    from weaverl.cli.outputs import check_writable, emit, require_finite
    from weaverl.simulation.advice import advise as advice_of
    from weaverl.simulation.costs import Costs
    from weaverl.simulation.timing_logs import LogSource, read_runs
    from weaverl.whole_file import write_whole

    check_writable(as_json)
    check_writable(gantt)
    require_finite({"--slo": slo, "--rollout-scale": rollout_scale, "--training-scale": training_scale})
    costs = Costs(link_gbps=link_gbps)
    arguments: dict[Path, LogArgument] = {}
    for argument in map(log_argument, logs):
        if argument.path in arguments:
            raise UsageError(f"{argument.path} is given twice: a job's log counts once")
        arguments[argument.path] = argument
    runs = read_runs([LogSource(path, argument.name) for path, argument in arguments.items()], warm_up)
    rollout_gpus, training_gpus = _gpus(gpus)
    general = LogArgument(path=Path(), model=model, slo=slo, rollout_gpus=rollout_gpus, training_gpus=training_gpus)
    pools = _default_cluster(costs) if cluster is None else _load(cluster)
    scales = (rollout_scale, training_scale)
    jobs = [_advised(run, arguments[Path(run.source)], general, scales, costs, cluster is None) for run in runs]
    found = advice_of(jobs, pools)
    if gantt is not None:
        write_whole(gantt, gantt_of(found))
    emit(figures_of(found, runs, jobs), as_json, lambda: print_advice(found, runs, jobs, sys.stdout))


def log_argument(text: str) -> LogArgument:
    """A log with its name and options. Raises UsageError."""
    if Path(text).exists():
        return LogArgument(path=Path(text))
    matched = _WITH_OPTIONS.match(text)
    assert matched is not None
    log, options = matched["log"], matched["options"]
    named = None if Path(log).exists() else _NAMED.match(log)
    given = dict(option.split("=", 1) for option in options.split(",")) if options else {}
    for option in given:
        if option not in _OPTIONS:
            raise UsageError(f"{text}: there is no option {option!r}: give {', '.join(_OPTIONS)}")
    return LogArgument(
        path=Path(named["log"] if named else log),
        name=named["name"] if named else "",
        rollout_gpus=_whole(text, given.get("rollout")),
        training_gpus=_whole(text, given.get("training")),
        model=given.get("model"),
        slo=_slo(text, given.get("slo")),
    )


def _gpus(text: str | None) -> tuple[int | None, int | None]:
    """GPUs of both pools as ``--gpus`` has them."""
    if text is None:
        return None, None
    rollout, comma, training = text.partition(",")
    if not comma:
        raise UsageError(f"--gpus {text}: give two numbers, rollout and training, such as 8,8")
    return _whole(f"--gpus {text}", rollout), _whole(f"--gpus {text}", training)


def _whole(where: str, text: str | None) -> int | None:
    if text is None:
        return None
    if not re.fullmatch("[0-9]{1,6}", text.strip()) or int(text) < 1:
        raise UsageError(f"{where}: {text!r} is no number of GPUs: give one such as 8")
    return int(text)


def _slo(where: str, text: str | None) -> float | None:
    from weaverl.config.units import parse_number

    if text is None:
        return None
    exact = parse_number(text)
    if exact is None or exact < 1:
        raise UsageError(f"{where}: slo {text!r} is no slowdown: give a number of at least 1, such as 1.5")
    return float(exact)


def _advised(
    run: "Run",
    own: LogArgument,
    general: LogArgument,
    scales: tuple[float, float],
    costs: "Costs",
    published_switches: bool,
) -> "AdvisedJob":
    """A run as a job to place, with what its log does not say from the options, and from estimates.

    Without a cluster file the switch times are those published for a model of its size.
    """
    from weaverl.domain.jobs import JobSpec, Role
    from weaverl.domain.units import GIB
    from weaverl.simulation.advice import AdvisedJob
    from weaverl.simulation.costs import for_model, sync_seconds
    from weaverl.simulation.estimate import host_memory_of
    from weaverl.simulation.hardware import gpu_kind
    from weaverl.simulation.models import model_shape

    rollout_gpus = own.rollout_gpus or general.rollout_gpus or run.setup.rollout_gpus
    training_gpus = own.training_gpus or general.training_gpus or run.setup.training_gpus
    if rollout_gpus is None or training_gpus is None:
        problem = f"{run.source} does not say how many GPUs {run.name} has"
        raise UsageError(f"{problem}: add :rollout=8,training=8 to it, or give --gpus 8,8")
    shape = model_shape(own.model or general.model or run.setup.model or _MODEL_UNKNOWN)
    there = run.on_two_pools(*scales, sync_seconds(costs, shape.weight_bytes / GIB))
    profile = there.profile()
    if published_switches:
        profile = msgspec.structs.replace(
            profile,
            rollout_switch_seconds=for_model(costs.rollout_switch_seconds, shape.billions),
            training_switch_seconds=for_model(costs.training_switch_seconds, shape.billions),
        )
    spec = JobSpec(
        name=run.name,
        roles=(Role(name="run", command=("measured",)),),
        rollout_gpus=rollout_gpus,
        training_gpus=training_gpus,
        host_memory=host_memory_of(shape, rollout_gpus, training_gpus, gpu_kind("H20"), costs),
        slo=own.slo or general.slo or 1.0,
        profile=profile,
    )
    return AdvisedJob(spec=spec, measured=there.durations(), colocated=run.setup.colocated)


def _load(path: Path) -> "Cluster":
    from weaverl.config.cluster_file import load_cluster

    return load_cluster(path)


def _default_cluster(costs: "Costs") -> "Cluster":
    from weaverl.simulation.standing import cluster_of

    return cluster_of(costs)
