"""``JOB.yaml``: what each key of a job file means; ``docs/job-file.md`` is the same for users."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path

from weaverl.config.document import (
    Mapping,
    Node,
    Scalar,
    describe,
    file_label,
    parse_document,
    read_text,
    show,
)
from weaverl.config.units import Rounding, format_seconds, parse_number
from weaverl.config.values import (
    Section,
    choice,
    integer,
    list_of,
    memory,
    name,
    number,
    seconds,
    text,
    text_or_nothing,
)
from weaverl.domain.jobs import DeviceMemory, DeviceNeed, HostMemory, JobSpec, PhaseProfile, Placement, Role

JOB_KEYS = (
    "name",
    "tenant",
    "slo",
    "priority",
    "placement",
    "staleness",
    "gpus",
    "host_memory",
    "device_memory",
    "iterations",
    "profile",
    "roles",
    "working_directory",
    "environment",
    "checkpoint_directory",
    "max_phase",
    "deadline",
    "max_retries",
)
POOL_KEYS = ("rollout", "training")
PROFILE_KEYS = (
    "rollout_max",
    "rollout_mean",
    "rollout_cv",
    "training",
    "sync",
    "other",
    "rollout_switch",
    "training_switch",
)
DEVICE_KEYS = ("state", "working")
ROLE_KEYS = ("command", "processes_per_node")
ROLES = {Placement.DISAGGREGATED: ("driver", "rollout", "training"), Placement.LOCAL: ("run",)}
OPTIONAL_ROLES = frozenset({"driver"})

MAX_PROCESSES_PER_NODE = 1024
MOST_STALENESS = 1
_ASYNCHRONOUS_KEYS = ("asynchronous", "async", "fully_async", "fully_asynchronous")
_WRITE_STALENESS = "write staleness: 1 (the next rollout may run beside training) or leave it out (synchronous)"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def load_job(path: Path) -> JobSpec:
    """Read a job file; relative directories in it start from the file's own. SpecError says what is wrong."""
    return parse_job(read_text(path), file=file_label(path), directory=path.absolute().parent)


def parse_job(content: str, *, file: str = "JOB.yaml", directory: Path) -> JobSpec:
    """Read the text of a job file; ``file`` is for messages, relative paths start from ``directory``."""
    document = parse_document(content, file=file)
    _refuse_asynchronous(document)
    section = Section(document, JOB_KEYS)
    placement = section.optional("placement", choice(Placement, ROLES), Placement.DISAGGREGATED)
    staleness = section.optional("staleness", lambda node: _staleness(node, placement), 0)
    gpus = section.subsection("gpus", POOL_KEYS)
    return JobSpec(
        name=section.required("name", name),
        tenant=section.optional("tenant", name, "default"),
        slo=section.required("slo", number(at_least=1)),
        priority=section.optional("priority", integer(at_least=-1_000_000, at_most=1_000_000), 0),
        placement=placement,
        rollout_gpus=gpus.required("rollout", integer(at_least=1)),
        training_gpus=gpus.required("training", integer(at_least=1)),
        host_memory=section.required("host_memory", _host_memory),
        device_memory=section.optional("device_memory", _device_memory, DeviceMemory()),
        iterations=section.optional("iterations", integer(at_least=1), None),
        profile=section.optional("profile", lambda node: _profile(node, staleness), None),
        roles=section.required("roles", lambda node: _roles(node, placement)),
        working_directory=section.optional(
            "working_directory", lambda node: _working_directory(node, directory), str(directory)
        ),
        environment=section.optional("environment", _environment, {}),
        checkpoint_directory=section.optional(
            "checkpoint_directory", lambda node: _checkpoint_directory(node, directory), None
        ),
        max_phase_seconds=section.optional("max_phase", seconds(above_zero=True), None),
        deadline_seconds=section.optional("deadline", seconds(above_zero=True), None),
        max_retries=section.optional("max_retries", integer(at_least=0, at_most=1000), 0),
        staleness=staleness,
    )


def _refuse_asynchronous(document: Node) -> None:
    """Fully asynchronous jobs have other names elsewhere; none of them is a key here."""
    entries = document.entries if isinstance(document, Mapping) else {}
    for key in _ASYNCHRONOUS_KEYS:
        if key in entries:
            node = entries[key]
            problem = f"weaverl runs no fully asynchronous job, {describe(node)}: {_WRITE_STALENESS}"
            raise node.place.refuse(problem)


def _staleness(node: Node, placement: Placement) -> int:
    given = parse_number(node.text) if isinstance(node, Scalar) else None
    if given is None or given > MOST_STALENESS:
        problem = f"weaverl runs no fully asynchronous job, got {describe(node)}: {_WRITE_STALENESS}"
        raise node.place.refuse(problem)
    staleness = integer(at_least=0)(node)
    if staleness and placement is not Placement.DISAGGREGATED:
        problem = f"a {placement} job has both phases on the same devices, so that they cannot run side by side"
        raise node.place.refuse(f"{problem}, got {staleness}: write placement: disaggregated, or leave staleness out")
    return staleness


def _host_memory(node: Node) -> HostMemory:
    section = Section(node, POOL_KEYS)
    demand = memory(Rounding.UP)
    return HostMemory(
        rollout_bytes=section.required("rollout", demand),
        training_bytes=section.required("training", demand),
    )


def _device_memory(node: Node) -> DeviceMemory:
    section = Section(node, POOL_KEYS)
    return DeviceMemory(
        rollout=section.optional("rollout", _device_need, None),
        training=section.optional("training", _device_need, None),
    )


def _device_need(node: Node) -> DeviceNeed:
    section = Section(node, DEVICE_KEYS)
    demand = memory(Rounding.UP)
    return DeviceNeed(state_bytes=section.required("state", demand), working_bytes=section.required("working", demand))


def _profile(node: Node, staleness: int) -> PhaseProfile:
    section = Section(node, PROFILE_KEYS)
    profile = PhaseProfile(
        rollout_max_seconds=section.required("rollout_max", seconds(above_zero=True)),
        rollout_mean_seconds=section.required("rollout_mean", seconds(above_zero=True)),
        rollout_cv=section.optional("rollout_cv", number(at_least=0), 0.0),
        training_seconds=section.required("training", seconds(above_zero=True)),
        sync_seconds=section.optional("sync", seconds(above_zero=False), 0.0),
        other_seconds=section.optional("other", seconds(above_zero=False), 0.0),
        rollout_switch_seconds=section.optional("rollout_switch", seconds(above_zero=False), None),
        training_switch_seconds=section.optional("training_switch", seconds(above_zero=False), None),
        staleness=staleness,
    )
    if profile.rollout_mean_seconds > profile.rollout_max_seconds:
        given = f"{format_seconds(profile.rollout_mean_seconds)} > {format_seconds(profile.rollout_max_seconds)}"
        problem = f"the mean is above rollout_max, {given}: rollout_max is the rollout at the response cap"
        raise section.place_of("rollout_mean").refuse(problem)
    return profile


def _roles(node: Node, placement: Placement) -> tuple[Role, ...]:
    other = Placement.LOCAL if placement is Placement.DISAGGREGATED else Placement.DISAGGREGATED
    if isinstance(node, Mapping) and node.entries and set(node.entries) <= set(ROLES[other]):
        found = ", ".join(node.entries)
        problem = f"not the roles of a {placement} job, {found}: write placement: {other}, or the roles"
        raise node.place.refuse(f"{problem} {', '.join(ROLES[placement])}")
    section = Section(node, ROLES[placement])
    wanted = (role for role in ROLES[placement] if role in section or role not in OPTIONAL_ROLES)
    return tuple(_role(role, section.subsection(role, ROLE_KEYS)) for role in wanted)


def _role(role: str, section: Section) -> Role:
    return Role(
        name=role,
        command=section.required("command", _command),
        processes_per_node=section.optional(
            "processes_per_node", integer(at_least=1, at_most=MAX_PROCESSES_PER_NODE), 1
        ),
    )


def _command(node: Node) -> tuple[str, ...]:
    words = _split(node) if isinstance(node, Scalar) else list_of(node, text_or_nothing)
    if not words or not words[0]:
        raise node.place.refuse(f"no program to run, {describe(node)}: begin with one, such as python")
    return words


def _split(node: Scalar) -> tuple[str, ...]:
    given = text(node)
    try:
        return tuple(shlex.split(given))
    except ValueError as error:
        raise node.place.refuse(f"cannot be split into words, {show(given)}, {error}: close it") from error


def _environment(node: Node) -> dict[str, str]:
    if not isinstance(node, Mapping):
        raise node.place.refuse(f'expected variables, got {describe(node)}: write {{NAME: "value"}}')
    for variable, value in node.entries.items():
        if not _VARIABLE.fullmatch(variable):
            problem = f"not a variable's name, {show(variable)}: use letters, digits and _, no digit first"
            raise value.place.refuse(problem)
        if variable.startswith("WEAVERL_"):
            raise value.place.refuse(f"weaverl sets {show(variable)} itself: choose another name")
    return {variable: text_or_nothing(value) for variable, value in node.entries.items()}


def _working_directory(node: Node, directory: Path) -> str:
    path = Path(directory, text(node))
    if not _holds(path.is_dir):
        raise node.place.refuse(f"not a directory, {_show_path(path)}: create it or name another")
    return str(path)


def _checkpoint_directory(node: Node, directory: Path) -> str:
    path = Path(directory, text(node))
    if not _holds(path.parent.is_dir):
        raise node.place.refuse(f"its parent is not a directory, {_show_path(path.parent)}: create it")
    if _holds(path.exists) and not _holds(path.is_dir):
        raise node.place.refuse(f"exists and is not a directory, {_show_path(path)}: name another")
    return str(path)


def _holds(question: Callable[[], bool]) -> bool:
    try:
        return question()
    except OSError:
        return False


def _show_path(path: Path) -> str:
    return show(str(path), at_most=400)
