"""An estimate as tables, and as a job file to complete."""

from math import ceil
from pathlib import Path
from typing import TextIO

import msgspec
from rich.text import Text

from weaverl.cli.observed import profile_block
from weaverl.config.job_file import parse_job
from weaverl.config.units import format_bytes
from weaverl.domain.jobs import PhaseProfile
from weaverl.domain.units import GIB
from weaverl.reports.sheets import sheet
from weaverl.reports.tables import console_for
from weaverl.simulation.estimate import Estimate
from weaverl.simulation.estimate_inputs import Term

_JOB_FILE = """\
# Estimated by weaverl for {model}, {responses} responses of up to {cap} tokens. The efficiencies behind it are
# assumptions: put measured times in their place as soon as you have them, or leave profile out and the first
# iterations are measured. Complete slo and the commands.
name: {name}
slo: 1.5
gpus: {{rollout: {rollout_gpus}, training: {training_gpus}}}
host_memory: {{rollout: {rollout_host}, training: {training_host}}}
{profile}
roles:
  rollout: {{command: [python, rollout.py]}}
  training: {{command: [python, training.py]}}
"""


def print_estimate(found: Estimate, stream: TextIO) -> None:
    """What was given, every term with its numbers, and the efficiencies that were assumed."""
    console = console_for(stream)
    work = found.workload
    console.print(
        Text(
            f"{work.model.name}, {work.prompts} x {work.samples} responses of up to {work.max_tokens} tokens "
            f"(mean {work.mean_tokens:.0f}), {work.rollout_gpus} {work.rollout_gpu.name} + "
            f"{work.training_gpus} {work.training_gpu.name}",
            style="bold",
        )
    )
    console.print(_headline(found), highlight=False)
    console.print()
    rows = [(term.name, _value(term), Text(term.formula, style="dim")) for term in found.terms if term.value]
    console.print(sheet(("term", "value", "from"), rows, console, words=("term", "from")), crop=False)
    console.print()
    assumed = ", ".join(f"{name}={value:g}" for name, value in msgspec.structs.asdict(found.efficiencies).items())
    console.print(Text(f"assumed (--efficiency NAME=VALUE changes one): {assumed}", style="dim"))


def job_file(name: str, found: Estimate) -> str:
    """A job file with the estimate in it. Raises SpecError if the name cannot be one."""
    work, memory = found.workload, found.host_memory
    text = _JOB_FILE.format(
        name=name,
        model=work.model.name,
        responses=work.responses,
        cap=work.max_tokens,
        rollout_gpus=work.rollout_gpus,
        training_gpus=work.training_gpus,
        rollout_host=_whole_gib(memory.rollout_bytes),
        training_host=_whole_gib(memory.training_bytes),
        profile=profile_block(_rounded(found.profile), "estimated, at the response cap"),
    )
    parse_job(text, file="--job", directory=Path.cwd())
    return text


def _headline(found: Estimate) -> str:
    profile, memory = found.profile, found.host_memory
    solo = profile.rollout_max_seconds + profile.training_seconds + profile.sync_seconds + profile.other_seconds
    return (
        f"rollout {profile.rollout_max_seconds:.0f} s at the cap, {profile.rollout_mean_seconds:.0f} s on average; "
        f"training {profile.training_seconds:.0f} s; sync {profile.sync_seconds:.0f} s; "
        f"an iteration alone {solo:.0f} s at most\n"
        f"host memory {memory.rollout_bytes / GIB:.0f} GiB on each rollout node, "
        f"{memory.training_bytes / GIB:.0f} GiB on each training node"
    )


def _value(term: Term) -> str:
    number = f"{term.value:,.0f}" if term.value >= 1000 else f"{term.value:.3g}"
    return f"{number} {term.unit}".rstrip()


def _rounded(profile: PhaseProfile) -> PhaseProfile:
    """Three digits are more than an estimate is good for."""
    values = {name: value for name, value in msgspec.structs.asdict(profile).items() if value is not None}
    return msgspec.structs.replace(profile, **{name: float(f"{value:.3g}") for name, value in values.items()})


def _whole_gib(num_bytes: int) -> str:
    return format_bytes(ceil(num_bytes / GIB) * GIB)
