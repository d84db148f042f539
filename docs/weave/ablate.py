"""What each lever of policy `weave` is worth: the same traces with one lever removed at a time.

``python docs/weave/ablate.py [--jobs N] [--only LEVER,...] TRACE...`` prints the table of ``docs/weave.md``: dollars
against the whole policy, promises kept, moves. A trace of 200 jobs takes some three minutes of a core for each lever.
No lever is a switch of the product: to remove one, a rule of the scheduler is replaced here, in a process of its own.
Seed 0, all costs on.
"""

import sys
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import geometric_mean
from types import MappingProxyType
from typing import Any, NamedTuple, NoReturn

import msgspec

from weaverl.cli.simulate_checks import check_names
from weaverl.domain.cluster import Node, PoolKind
from weaverl.domain.groups import Group
from weaverl.domain.jobs import JobSpec
from weaverl.errors import UsageError
from weaverl.scheduling import drift, expected_dollars, objectives, placement, players, progress, replanning
from weaverl.scheduling.admission import Candidate, Decision, predicted_slowdowns
from weaverl.scheduling.index import index_of
from weaverl.scheduling.policies import shortlist, weave
from weaverl.scheduling.round_model import is_saturated
from weaverl.scheduling.state import ClusterState, Parameters
from weaverl.simulation.simulate import Setup, simulate
from weaverl.simulation.traces.read import read_trace
from weaverl.simulation.traces.records import Trace

Patch = Callable[[], None]
Offers = Iterator[tuple[list[Node], list[Node]]]


class Parser(ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        """Raise it."""
        raise UsageError(message)


class Lever(NamedTuple):
    """What the table calls it, and how it is removed: by another rule, or by parameters."""

    label: str
    remove: Patch
    setup: Mapping[str, object] = MappingProxyType({})


class Run(NamedTuple):
    """What is kept of a run."""

    lever: str
    trace: str
    usd: float
    attainment: float
    moves: int


def _replace(owner: Any, name: str, rule: Any) -> None:
    """Put another rule in the place of one that is there."""
    assert hasattr(owner, name), f"{owner} has no {name}"
    setattr(owner, name, rule)


def _in_lockstep() -> None:
    """Groups run in lockstep rounds, and are predicted so.

    State is restored ahead only in groups by slack, so hidden switches are gone as well.
    """
    _replace(Parameters, "by_slack", property(lambda _: False))
    for module in (expected_dollars, weave, replanning):
        _replace(module, "slowdowns_of", lambda stays: predicted_slowdowns([stay.member for stay in stays]))


def _nobody_is_late() -> None:
    """No slots are kept free, and nobody goes first because little is left to lose."""
    for module in (players, progress):
        _replace(module, "late_below", lambda slo: -1e9)


def _no_rescues() -> None:
    """No job moves to save a promise."""
    _replace(replanning, "_rescue", lambda state, group: None)


def _by_the_hour() -> None:
    """An arrival takes the placement that adds the fewest dollars an hour; moves are still weighed in all."""
    whole, added, least = weave.choose, weave._added_usd, weave.option_of

    def by_the_hour(*given: Any) -> weave.Option:
        option = least(*given)
        return option._replace(least_usd=option.candidate.added_usd_per_hour)

    def choose(state: ClusterState, spec: JobSpec) -> Decision:
        _replace(weave, "_added_usd", lambda state, option, stays, slowdowns: option.candidate.added_usd_per_hour)
        _replace(weave, "option_of", by_the_hour)
        try:
            return whole(state, spec)
        finally:
            _replace(weave, "_added_usd", added)
            _replace(weave, "option_of", least)

    placement._POLICIES["weave"] = choose


def _own_training_nodes() -> None:
    """A group's training nodes are never new."""
    _offered(lambda pool, needed, opened: pool is PoolKind.ROLLOUT or not opened)


def _all_or_nothing() -> None:
    """In a pool a job has only nodes that the group has, or only new ones."""
    _offered(lambda pool, needed, opened: opened in (0, needed))


def _offered(keep: Callable[[PoolKind, int, int], bool]) -> None:
    offers = weave._offers

    def some(state: ClusterState, pool: PoolKind, own: list[Node], num_gpus: int, num_bytes: int) -> Offers:
        needed = -(-num_gpus // max((node.num_devices for node in own), default=1))
        for nodes, opened in offers(state, pool, own, num_gpus, num_bytes):
            if keep(pool, needed, len(opened)):
                yield nodes, opened

    _replace(weave, "_offers", some)


def _saturated_are_full() -> None:
    """Nobody joins a group whose busiest node has no bubble left, as published."""
    into = weave._into

    def unsaturated(state: ClusterState, spec: JobSpec, group: Group) -> Iterator[Candidate]:
        if not is_saturated(index_of(state).members(group.members)):
            yield from into(state, spec, group)

    _replace(weave, "_into", unsaturated)


def _to_the_end() -> None:
    """Dollars are counted until all jobs have ended, as things are."""
    for module in (objectives, shortlist):
        _replace(module, "HORIZON_US", 1e15)


def _work_at_its_worth() -> None:
    """Later work costs as much as on GPUs of its own."""
    for module in (expected_dollars, shortlist):
        _replace(module, "price_of_work", lambda spending: 1.0)


def _no_regroupings() -> None:
    """Only moves that pay by themselves are made."""
    _replace(replanning, "regrouping", lambda *given: ())


def _mean_rollouts() -> None:
    """The forecast plays every rollout at its mean."""
    _replace(expected_dollars, "spread", lambda profile: (round(profile.rollout_mean_seconds * 1e6),))


def _no_reserve() -> None:
    """Nothing is kept in hand for what no play foresees."""
    _replace(weave, "_EXCESS", 0.0)
    _replace(weave, "_ALWAYS", 0.0)


def _no_following() -> None:
    """Profiles stay what the job file says."""
    _replace(drift, "followed", lambda record, error: None)


def _nothing() -> None:
    """All levers."""


LEVERS = {
    "whole": Lever("the whole policy", _nothing),
    "moves": Lever("moves", _nothing, {"max_moves_per_job": 0}),
    "rescues": Lever("moves that save a promise", _no_rescues),
    "together": Lever("moves that pay only together", _no_regroupings),
    "horizon": Lever("eight hours ahead: all until the end", _to_the_end),
    "price": Lever("the price of work: later work at its worth", _work_at_its_worth),
    "hidden": Lever("hidden switches", _nothing, {"hidden_switches": False}),
    "slack": Lever("turns by slack (and hidden switches)", _in_lockstep),
    "late": Lever("slots kept free for late jobs", _nobody_is_late),
    "dollars": Lever("expected dollars (arrivals: dollars an hour)", _by_the_hour),
    "training": Lever("new training nodes", _own_training_nodes),
    "split": Lever("splitting over old and new nodes", _all_or_nothing),
    "saturated": Lever("saturated groups are open", _saturated_are_full),
    "spread": Lever("rollouts as they are spread", _mean_rollouts),
    "reserve": Lever("the reserve", _no_reserve),
    "drift": Lever("profiles follow drift", _no_following),
}
"""By their names on the command line."""


def run(lever: str, trace: Trace) -> Run:
    """One trace without a lever; in a process of its own."""
    _, remove, setup = LEVERS[lever]
    remove()
    found = simulate(trace, Setup(policy="weave", **setup))
    if found.jobs_finished != len(trace.jobs):
        raise RuntimeError(f"{trace.name} without {lever}: {found.jobs_finished} of {len(trace.jobs)} jobs finished")
    return Run(lever, trace.name, found.usd, found.slo_attainment or 0.0, found.moves)


def table(runs: Sequence[Run]) -> str:
    """Markdown: a row a lever, dollars against the whole policy on the same trace."""
    whole = {one.trace: one.usd for one in runs if one.lever == "whole"}
    lines = [f"| without | {' | '.join(whole)} | dollars |", "|---" * (len(whole) + 2) + "|"]
    for lever in dict.fromkeys(one.lever for one in runs):
        own = {one.trace: one for one in runs if one.lever == lever}
        cells = [
            f"{own[t].usd:,.0f}, {100 * own[t].attainment:.1f} %, {own[t].moves}" if t in own else "" for t in whole
        ]
        times = geometric_mean(own[trace].usd / usd for trace, usd in whole.items() if trace in own)
        lines.append(f"| {LEVERS[lever].label} | {' | '.join(cells)} | {100 * (times - 1):+.1f} % |")
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> None:
    """Run and print."""
    parser = Parser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("traces", nargs="+", type=Path, metavar="TRACE")
    parser.add_argument("--jobs", type=_count, help="only so many jobs of each trace, the first to arrive")
    parser.add_argument("--only", type=_levers, default=list(LEVERS), help="some levers, separated by commas")
    parser.add_argument("--workers", type=_count, default=2)
    given = parser.parse_args(arguments)
    traces = [_first(read_trace(path), given.jobs) for path in given.traces]
    check_names(traces)
    levers = ["whole", *(lever for lever in given.only if lever != "whole")]
    with ProcessPoolExecutor(given.workers, get_context("spawn"), max_tasks_per_child=1) as pool:
        asked = [pool.submit(run, lever, trace) for lever in levers for trace in traces]
        print(table([one.result() for one in asked]))


def _first(trace: Trace, num_jobs: int | None) -> Trace:
    if num_jobs is None:
        return trace
    jobs = tuple(sorted(trace.jobs, key=lambda job: job.arrival_seconds)[:num_jobs])
    return msgspec.structs.replace(trace, jobs=jobs)


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text)):
        raise ArgumentTypeError(f"got {text!r}: give a whole number, 1 or more")
    return int(text)


def _levers(text: str) -> list[str]:
    found = [name.strip() for name in text.split(",")]
    if unknown := [name for name in found if name not in LEVERS]:
        raise ArgumentTypeError(f"{unknown[0]!r} is no lever: choose from {', '.join(LEVERS)}")
    if twice := [name for name in found if found.count(name) > 1]:
        raise ArgumentTypeError(f"{twice[0]!r} is named {found.count(twice[0])} times: name each once")
    return found


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except UsageError as error:
        print(f"{Path(__file__).name}: {error}", file=sys.stderr)
        sys.exit(2)
