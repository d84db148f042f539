"""What `weaverl simulate` and `compare` refuse, and what they warn of."""

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from weaverl.errors import UsageError

if TYPE_CHECKING:
    from weaverl.domain.sharing import Sharing
    from weaverl.simulation.outcome import Outcome
    from weaverl.simulation.traces.records import Trace


def complain_of_different_work(outcomes: Sequence["Outcome"]) -> None:
    """Say of each trace which policies did not run every job, so that their dollars stand in no proportion."""
    for trace in dict.fromkeys(one.trace for one in outcomes):
        some = [one for one in outcomes if one.trace == trace and one.jobs_finished < one.jobs]
        if some:
            done = ", ".join(f"{one.policy} finished {one.jobs_finished} of {one.jobs} jobs" for one in some)
            print(f"weaverl: {trace}: {done}: no ratios with it, dollars of different work", file=sys.stderr)


class NamedRun(NamedTuple):
    """What one of the compared runs is of, by the names of ``Setup``."""

    policy: str
    objective: str = "dollars"
    colocates: bool = False


def named_runs(policies: str, objectives: str, colocates: bool = False) -> list[NamedRun]:
    """Each policy with its objective, in the order in which they are named; policy weave once with each objective."""
    names, aims = ([one.strip() for one in given.split(",") if one.strip()] for given in (policies, objectives))
    for option, found, such in (("policies", names, "weave-paper"), ("objective", aims, "throughput")):
        if not found:
            raise UsageError(f"--{option} is empty: name at least one, such as {such}")
        check_named_once(f"--{option}", found)
    if "weave" not in names:
        for aim in aims:
            check_policy(names[0], aim)
    if "throughput" not in aims:
        check_policy("weave", aims[0], colocates)
    runs = [
        NamedRun(name, aim, colocates and aim == "throughput")
        for name in names
        for aim in (aims if name == "weave" else ["dollars"])
    ]
    for run in runs:
        check_policy(*run)
    return runs


def check_named_once(option: str, names: Sequence[str]) -> None:
    """Refuse a list that names something twice: results are told apart by it."""
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"{option} has {name!r} {names.count(name)} times: name each once")


def check_policy(name: str, objective: str = "dollars", colocates: bool = False) -> None:
    """Refuse a policy that cannot be simulated, or not for this objective, before anything is run."""
    from weaverl.scheduling.policies.optimal import MOST_JOBS
    from weaverl.scheduling.state import Parameters

    if name == "optimal":
        what = f"regroups running jobs freely, for snapshots of up to {MOST_JOBS} jobs"
        raise UsageError(f"policy optimal {what}, so no trace runs under it: `weaverl reproduce` compares with it")
    Parameters(policy=name, objective=objective, colocates=colocates)


def check_hidden(no_hidden_switches: bool, policies: Iterable[str]) -> None:
    """Refuse to turn off what none of the policies does."""
    if no_hidden_switches and "weave" not in (names := list(policies)):
        raise UsageError(
            f"only policy weave hides switches, the policy is {', '.join(names)}: "
            f"choose weave, or leave --no-hidden-switches out"
        )


def warn_of_tenants(sharing: "Sharing | None", traces: Iterable["Trace"]) -> None:
    """Say which tenants have a weight and no job: a name may be misspelt."""
    jobs = {job.tenant for trace in traces for job in trace.jobs}
    strangers = [name for name in (sharing.tenants if sharing is not None else {}) if name not in jobs]
    if strangers:
        named = f"tenant{'s' if len(strangers) > 1 else ''} {', '.join(strangers)}"
        print(f"weaverl: sharing names {named}, of whom the trace has no job: the weight does nothing", file=sys.stderr)


def check_names(traces: Sequence["Trace"]) -> None:
    """Refuse traces of one name: results are told apart by it."""
    names = [trace.name for trace in traces]
    for name in dict.fromkeys(names):
        if names.count(name) > 1:
            raise UsageError(f"{names.count(name)} traces are named {name}: give each its own file name, and once")


def parameter(name: str, text: str) -> Any:
    """The value of a simulation's parameter, as its type is. Raises UsageError."""
    import msgspec

    from weaverl.simulation.costs import Costs

    (field,) = (one for one in msgspec.structs.fields(Costs) if one.name == name)
    try:
        return msgspec.convert(text.split(",") if "," in text else text, field.type, strict=False)
    except msgspec.ValidationError:
        raise UsageError(f"--set {name}={text}: give {_kind(field.default)}") from None


def _kind(default: object) -> str:
    from weaverl.simulation.costs import LinkSharing

    if isinstance(default, bool):
        return "true or false"
    if isinstance(default, tuple):
        return f"two numbers, at 7B and at 70B, such as {','.join(map(str, default))}"
    if isinstance(default, LinkSharing):
        return " or ".join(LinkSharing)
    if default is None:
        return "a number"
    return f"a {'whole ' if isinstance(default, int) else ''}number, such as {default}"


def refuse_others(context: typer.Context, *allowed: str) -> None:
    """Refuse options that would be ignored beside the first of the allowed ones."""
    given = [
        "/".join(parameter.opts + parameter.secondary_opts)
        for parameter in context.command.params
        if parameter.name not in allowed
        and (source := context.get_parameter_source(str(parameter.name))) is not None
        and source.name != "DEFAULT"
    ]
    if given:
        raise UsageError(f"{', '.join(given)} cannot be given with --{allowed[0].replace('_', '-')}: leave it out")
