"""`weaverl simulate` and `weaverl compare`: traces under policies, with the scheduler of the live cluster."""

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weaverl.cli.fleet import check_fleet, check_share, on_fleet
from weaverl.cli.outputs import check_writable, emit
from weaverl.cli.simulate_checks import (
    NamedRun,
    check_hidden,
    check_names,
    check_policy,
    complain_of_different_work,
    named_runs,
    parameter,
    refuse_others,
    warn_of_tenants,
)
from weaverl.errors import UsageError

if TYPE_CHECKING:
    from weaverl.simulation.costs import Costs
    from weaverl.simulation.outcome import Outcome
    from weaverl.simulation.simulate import Replacing, Setup
    from weaverl.simulation.traces.records import Trace
    from weaverl.simulation.world import Listener

AUDITED_ITERATIONS = 1_000_000
"""Longer traces are audited only when asked: their timelines fill memory."""
MOST_FINDINGS = 20
BASELINES = ("solo", "colocated")
POLICIES_HELP = "solo, colocated, gavel, weave-paper, or weave (ours)."
TRACE_FOLDERS = (Path("traces"), Path("..") / "shared" / "data" / "traces")

TraceName = Annotated[
    str | None, typer.Argument(metavar="TRACE", help="A trace in our CSV schema, or its name in traces/.")
]
TraceNames = Annotated[list[str], typer.Argument(metavar="TRACE...", help="Trace files, or names in traces/.")]
MOST_SEED = 2**63 - 1
"""Readers of JSON take no longer number for a whole one."""
Seed = Annotated[int, typer.Option(min=0, max=MOST_SEED, help="Seed of the rollout times: the same for every policy.")]
NoRandom = Annotated[bool, typer.Option("--no-random", help="Every rollout takes its mean.")]
Drift = Annotated[
    float | None,
    typer.Option(metavar="FACTOR", help="Rollouts grow to this factor over each job, not as in the trace."),
]
NoTail = Annotated[bool, typer.Option("--no-tail-migration", help="Rollouts hold all their devices to their end.")]
NoHidden = Annotated[
    bool, typer.Option("--no-hidden-switches", help="Policy weave restores no state before its job asks for the slots.")
]
Sharing = Annotated[str, typer.Option(metavar="per_node|shared", help="The slow link: for each pair of nodes, or one.")]
SharingFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Shares, priorities, deadlines: a file with the `sharing` of a cluster file."),
]
MaxNodes = Annotated[int | None, typer.Option(help="Nodes in each pool; without it as many as are needed.")]
Fleet = Annotated[
    float | None,
    typer.Option(metavar="SHARE", help="Limit each pool to this share of solo's peak nodes there, rounded up."),
]
Colocate = Annotated[
    bool,
    typer.Option(
        "--colocate", help="For throughput a job may have all phases on training GPUs, as no job of a live cluster can."
    ),
]
OBJECTIVE_HELP = "Of policy weave: dollars, where nodes come and go, or throughput of a fixed fleet."
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Any other parameter, as named in the JSON's `parameters`."),
]
Audit = Annotated[
    bool | None,
    typer.Option(
        "--audit/--no-audit",
        show_default=False,
        help=f"Confirm all figures from trace and timeline alone; by default up to {AUDITED_ITERATIONS:,} iterations.",
    ),
]
NoTimings = Annotated[bool, typer.Option("--no-timings", help="Leave wall times out: equal runs give equal JSON.")]
AsJson = Annotated[
    Path | None, typer.Option("--json", metavar="FILE", help="Write the figures as JSON; - is standard output.")
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(simulate)
    app.command()(compare)


def simulate(
    context: typer.Context,
    trace: TraceName = None,
    policy: Annotated[str, typer.Option(help=POLICIES_HELP)] = "weave-paper",
    objective: Annotated[str, typer.Option(metavar="dollars|throughput", help=OBJECTIVE_HELP)] = "dollars",
    colocate: Colocate = False,
    seed: Seed = 0,
    no_random: NoRandom = False,
    drift: Drift = None,
    no_tail_migration: NoTail = False,
    no_hidden_switches: NoHidden = False,
    link_sharing: Sharing = "per_node",
    max_nodes: MaxNodes = None,
    fleet: Fleet = None,
    sharing: SharingFile = None,
    settings: Settings = None,
    no_timings: NoTimings = False,
    timeline: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write every interval: who held what when, and did what.")
    ] = None,
    audit: Audit = None,
    from_timeline: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Instead of a trace: a measured run again, with its own times."),
    ] = None,
    as_json: AsJson = None,
) -> None:
    """Run a trace of jobs under a policy: dollars, slowdowns, bubbles."""
    from weaverl.config.sharing import load_sharing
    from weaverl.reports.simulated import print_outcome
    from weaverl.reports.tables import console_for
    from weaverl.simulation.simulate import Setup

    check_writable(as_json)
    check_writable(timeline)
    if (trace is None) == (from_timeline is None):
        raise UsageError("give either a TRACE or --from-timeline FILE")
    if from_timeline is not None:
        refuse_others(context, "from_timeline", "as_json")
        again(from_timeline, as_json)
        return
    assert trace is not None
    check_policy(policy, objective, colocate)
    check_hidden(no_hidden_switches, [policy])
    costs = resolved_costs(settings, no_tail_migration, link_sharing, max_nodes)
    check_fleet([objective], fleet, costs)
    shared = None if sharing is None else load_sharing(sharing)
    setup = Setup(
        policy=policy,
        objective=objective,
        colocates=colocate,
        seed=None if no_random else seed,
        costs=costs,
        timings=not no_timings,
        sharing=shared,
        hidden_switches=not no_hidden_switches,
    )
    check_share(fleet, setup)
    loaded = load_trace(trace, drift)
    warn_of_tenants(shared, [loaded])
    outcome = run_audited(loaded, on_fleet(loaded, setup, fleet), audit, timeline)
    emit(outcome, as_json, lambda: print_outcome(outcome, console_for(sys.stdout)))
    raise typer.Exit(complain_of_missing(outcome))


def again(path: Path, as_json: Path | None) -> None:
    """Simulation against reality: a measured run with its own times, placed as it was, its turns decided anew."""
    import msgspec

    from weaverl.reports.recorded import compare_timeline
    from weaverl.reports.simulated import print_against_reality
    from weaverl.reports.tables import console_for

    found = compare_timeline(path)
    figures = {**msgspec.to_builtins(found), "deviation": found.deviation}
    emit(figures, as_json, lambda: print_against_reality(found, console_for(sys.stdout)))


def compare(
    traces: TraceNames,
    policies: Annotated[
        str, typer.Option(help=f"Separated by commas: {POLICIES_HELP}")
    ] = "solo,colocated,gavel,weave-paper",
    objective: Annotated[
        str,
        typer.Option(metavar="dollars|throughput", help=f"{OBJECTIVE_HELP} Both, with a comma: weave under each."),
    ] = "dollars",
    colocate: Colocate = False,
    seed: Seed = 0,
    no_random: NoRandom = False,
    drift: Drift = None,
    no_tail_migration: NoTail = False,
    no_hidden_switches: NoHidden = False,
    link_sharing: Sharing = "per_node",
    max_nodes: MaxNodes = None,
    fleet: Fleet = None,
    sharing: SharingFile = None,
    settings: Settings = None,
    no_timings: NoTimings = False,
    audit: Audit = None,
    as_json: AsJson = None,
) -> None:
    """Run traces under several policies and set their dollars in proportion to solo and colocated."""
    import msgspec

    from weaverl.config.sharing import load_sharing
    from weaverl.reports.simulated import print_comparison
    from weaverl.reports.tables import console_for
    from weaverl.simulation.simulate import Setup

    check_writable(as_json)
    costs = resolved_costs(settings, no_tail_migration, link_sharing, max_nodes)
    named = named_runs(policies, objective, colocate)
    check_hidden(no_hidden_switches, [one.policy for one in named])
    check_fleet([one.objective for one in named], fleet, costs)
    shared = None if sharing is None else load_sharing(sharing)
    setup = Setup(
        seed=None if no_random else seed,
        costs=costs,
        timings=not no_timings,
        sharing=shared,
        hidden_switches=not no_hidden_switches,
    )
    check_share(fleet, setup)
    loaded = [load_trace(name, drift) for name in traces]
    check_names(loaded)
    warn_of_tenants(shared, loaded)
    outcomes = [
        run_audited(trace, msgspec.structs.replace(placed, **one._asdict()), audit)
        for trace in loaded
        for placed in [on_fleet(trace, setup, fleet)]
        for one in dict.fromkeys((*named, *map(NamedRun, BASELINES)))
    ]
    names = {one.policy for one in named}
    results = [one for one in outcomes if one.policy in names]
    ratios = [ratios_of(one, outcomes) for one in results]
    figures = {"results": results, "ratios": ratios}
    complain_of_different_work(outcomes)
    emit(figures, as_json, lambda: print_comparison(results, ratios, console_for(sys.stdout)))
    raise typer.Exit(max([complain_of_missing(one) for one in results], default=0))


def run_audited(
    trace: "Trace",
    setup: "Setup",
    audit: bool | None,
    timeline: Path | None = None,
    replacing: "Replacing | None" = None,
    listeners: "Sequence[Listener]" = (),
) -> "Outcome":
    """Run a trace behind a progress bar; write its timeline and have it audited if that is wanted."""
    import msgspec

    from weaverl.cli.progress import progress_bars
    from weaverl.reports.recorded import audit_recorded, write_recorded
    from weaverl.simulation.simulate import simulate_heard
    from weaverl.simulation.timeline import Recorder

    if audit is None:
        audit = sum(job.iterations for job in trace.jobs) <= AUDITED_ITERATIONS
    recorder = Recorder() if audit or timeline is not None else None
    with progress_bars() as bars:
        task = bars.add_task(f"{trace.name}, {setup.policy}", total=len(trace.jobs))
        finished = simulate_heard(trace, setup, listeners, partial(bars.advance, task), recorder, replacing)
    if recorder is not None and timeline is not None:
        write_recorded(timeline, finished.cluster, recorder)
    if recorder is None or not audit:
        return finished.outcome
    result = audit_recorded(trace, finished.cluster, recorder, finished.outcome)
    for finding in result.findings[:MOST_FINDINGS]:
        print(f"weaverl: the auditor does not agree: {finding}", file=sys.stderr)
    return msgspec.structs.replace(finished.outcome, audited=result.audited)


def ratios_of(outcome: "Outcome", outcomes: list["Outcome"]) -> dict[str, Any]:
    """The baselines' dollars on the same trace over this outcome's: above 1 it is cheaper."""
    from weaverl.simulation.outcome import usd_ratio

    beside = {one.policy: one for one in outcomes if one.trace == outcome.trace}
    ratios = {name: usd_ratio(beside[name], outcome) for name in BASELINES}
    return {"trace": outcome.trace, "policy": outcome.policy, **ratios}


def resolved_costs(
    settings: list[str] | None, no_tail_migration: bool, link_sharing: str, max_nodes: int | None
) -> "Costs":
    """The evaluation constants with what the options changed."""
    import msgspec

    from weaverl.simulation.costs import Costs, LinkSharing

    if link_sharing not in list(LinkSharing):
        raise UsageError(f"--link-sharing is {link_sharing}: give {' or '.join(LinkSharing)}")
    changed: dict[str, Any] = {"tail_migration": not no_tail_migration, "link_sharing": link_sharing}
    if max_nodes is not None:
        if max_nodes < 1:
            raise UsageError(f"--max-nodes is {max_nodes}: a pool has 1 or more")
        changed["max_nodes_per_pool"] = max_nodes
    for setting in settings or []:
        name, equals, value = setting.partition("=")
        if not equals or name not in Costs.__struct_fields__:
            raise UsageError(f"--set {setting}: give NAME=VALUE, NAME one of {', '.join(Costs.__struct_fields__)}")
        changed[name] = parameter(name, value)
    return msgspec.convert(changed, Costs)


def load_trace(name: str, drift: float | None = None) -> "Trace":
    """A trace by its path, or by the name of a file in a folder of traces; with ``drift`` its rollouts grow so."""
    import msgspec

    from weaverl.simulation.traces.read import read_trace

    path = Path(name)
    if not path.exists() and path.name == name:
        found = [
            folder / file for folder in TRACE_FOLDERS for file in (name, f"{name}.csv") if (folder / file).is_file()
        ]
        path = found[0] if found else path
    trace = read_trace(path)
    if drift is None:
        return trace
    if not 0 < drift < float("inf"):
        raise UsageError(f"--drift is {drift}: give a factor above 0, such as 1.5")
    jobs = tuple(msgspec.structs.replace(job, rollout_growth=drift) for job in trace.jobs)
    return msgspec.structs.replace(trace, name=f"{trace.name}, drift {drift:g}", jobs=jobs)


def complain_of_missing(outcome: "Outcome") -> int:
    """Say which jobs did not run to their end, and why; the exit code is 1 then, and where the auditor disagrees."""
    if outcome.jobs_finished == outcome.jobs and outcome.jobs:
        return 1 if outcome.audited is False else 0
    reasons = dict(outcome.refused)
    for name, why in outcome.unfinished.items():
        reasons[f"{name} never ended: {why or 'unknown'}"] = 1
    what = f"{outcome.jobs_admitted} of {outcome.jobs} admitted, {outcome.jobs_finished} finished"
    why = "the trace has no jobs" if not outcome.jobs else _first(reasons)
    print(f"weaverl: {outcome.trace}, {outcome.policy}: {what}: {why}", file=sys.stderr)
    return 1


def _first(reasons: dict[str, int]) -> str:
    shown = list(reasons)[:3]
    return "; ".join(shown) + (f"; and {len(reasons) - 3} more" if len(reasons) > 3 else "")
