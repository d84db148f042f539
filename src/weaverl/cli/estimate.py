"""`weaverl estimate`: a profile for a job that nobody has measured yet."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from weaverl.errors import UsageError

if TYPE_CHECKING:
    from weaverl.simulation.estimate_inputs import Efficiencies

_MAX_VALUE = 1e6

JsonFile = Annotated[
    Path | None, typer.Option("--json", metavar="FILE", help="Write the figures as JSON; - is standard output.")
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(estimate)


def estimate(
    model: Annotated[str, typer.Argument(help="A known model, such as Qwen2.5-7B, or billions of parameters.")],
    max_tokens: Annotated[int, typer.Option(min=16, help="Cap of a response, all its turns together.")],
    mean_tokens: Annotated[
        float | None, typer.Option(help="Mean length of a response.", show_default="a fifth of the cap")
    ] = None,
    prompt_tokens: Annotated[int, typer.Option(min=1, help="Length of a prompt.")] = 1024,
    prompts: Annotated[int, typer.Option(min=1, help="Prompts of an iteration.")] = 64,
    samples: Annotated[int, typer.Option(min=1, help="Responses to each prompt.")] = 8,
    turns: Annotated[int, typer.Option(min=1, help="Turns with an environment; 1 is none.")] = 1,
    turn_seconds: Annotated[float, typer.Option(min=0, help="What the environment takes between two turns.")] = 10.0,
    rollout_gpus: Annotated[int, typer.Option(min=1)] = 8,
    training_gpus: Annotated[int, typer.Option(min=1)] = 8,
    rollout_gpu: Annotated[str, typer.Option(metavar="KIND", help="H20, H800, H100, H200, A100, L40S, ...")] = "H20",
    training_gpu: Annotated[str, typer.Option(metavar="KIND")] = "H800",
    tensor_parallel: Annotated[
        int | None,
        typer.Option(min=1, help="GPUs a copy of the weights.", show_default="weights at most 1/4 of memory"),
    ] = None,
    epochs: Annotated[int, typer.Option(min=1, help="Passes of training over the samples.")] = 1,
    log_prob_passes: Annotated[int, typer.Option(min=0, help="Forward passes for old and reference log-probs.")] = 2,
    recompute: Annotated[bool, typer.Option(help="Activations are recomputed in the backward pass.")] = True,
    other_seconds: Annotated[float, typer.Option(min=0, help="Reward, data, checkpoints; known to you only.")] = 0.0,
    link_gbps: Annotated[float, typer.Option(min=0.001, help="Link between the pools.")] = 20.0,
    gpus_per_node: Annotated[int, typer.Option(min=1)] = 8,
    efficiency: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Replace an efficiency; the output lists them.")
    ] = None,
    job: Annotated[str | None, typer.Option(metavar="NAME", help="Print a job file to complete, and no table.")] = None,
    as_json: JsonFile = None,
) -> None:
    """Estimate phase times and host memory by roofline, for a job that has no profile yet.

    A start, not a measurement: the first iterations on a cluster give the true profile.
    """
    from weaverl.cli.estimate_view import job_file, print_estimate
    from weaverl.cli.outputs import check_writable, is_standard_output, require_finite, write_json
    from weaverl.simulation.costs import Costs
    from weaverl.simulation.estimate import estimate as estimate_of
    from weaverl.simulation.estimate_inputs import Workload
    from weaverl.simulation.hardware import gpu_kind
    from weaverl.simulation.models import model_shape

    check_writable(as_json)
    require_finite({"--turn-seconds": turn_seconds, "--other-seconds": other_seconds, "--link-gbps": link_gbps})
    workload = Workload(
        model=model_shape(model),
        max_tokens=max_tokens,
        mean_tokens=max_tokens / 5 if mean_tokens is None else mean_tokens,
        rollout_gpu=gpu_kind(rollout_gpu),
        training_gpu=gpu_kind(training_gpu),
        rollout_gpus=rollout_gpus,
        training_gpus=training_gpus,
        prompt_tokens=prompt_tokens,
        prompts=prompts,
        samples=samples,
        turns=turns,
        turn_seconds=turn_seconds,
        epochs=epochs,
        log_prob_passes=log_prob_passes,
        recompute=recompute,
        tensor_parallel=tensor_parallel,
        other_seconds=other_seconds,
    )
    costs = Costs(link_gbps=link_gbps, gpus_per_node=gpus_per_node)
    found = estimate_of(workload, parse_efficiencies(efficiency or []), costs)
    if job is not None:
        print(job_file(job, found), end="")
    if as_json is not None:
        write_json(found, as_json)
    if job is None and not is_standard_output(as_json):
        print_estimate(found, sys.stdout)


def parse_efficiencies(given: Sequence[str]) -> "Efficiencies":
    """Efficiencies with what was given as ``NAME=VALUE`` replaced. Raises UsageError."""
    import msgspec

    from weaverl.config.units import parse_number
    from weaverl.simulation.estimate_inputs import SHARES, Efficiencies

    changed: dict[str, float] = {}
    for text in given:
        name, _, value = text.partition("=")
        if name not in Efficiencies.__struct_fields__:
            names = ", ".join(Efficiencies.__struct_fields__)
            raise UsageError(f"--efficiency {text}: there is no {name!r}; give NAME=VALUE with one of {names}")
        exact = parse_number(value)
        if exact is None or not 0 < exact <= _MAX_VALUE:
            raise UsageError(f"--efficiency {text}: {value!r} is not a number above zero; give one such as 0.5")
        if name in SHARES and exact > 1:
            raise UsageError(f"--efficiency {text}: more than the data sheet gives; give a share of it, such as 0.5")
        changed[name] = float(exact)
    return msgspec.structs.replace(Efficiencies(), **changed)
