"""What a veRL console log says about the run's set-up: it prints its whole configuration at the start."""

import re

import msgspec

from weaverl.simulation.models import size_in

_PREFIX = re.compile(r"^\s*(?:\x1b\[[0-9;]*m)*\([A-Za-z]\w* pid=[^)]*\)(?:\x1b\[[0-9;]*m)* ?", re.MULTILINE)
_MODEL = re.compile(r"'actor_rollout_ref'.*?'model': \{.*?'path': '([^']*)'", re.DOTALL)
_GPUS = re.compile(r"'n_gpus_per_node': ([0-9]+)")
_NODES = re.compile(r"'nnodes': ([0-9]+)")
_SEARCHED = 1 << 20


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """GPUs of each role and the model, where the log says them; ``colocated``: both roles on the same GPUs."""

    rollout_gpus: int | None = None
    training_gpus: int | None = None
    colocated: bool = False
    model: str | None = None


def setup_of(console: str) -> Setup:
    """The set-up that a console log tells, as far as it does."""
    text = _PREFIX.sub("", console[:_SEARCHED])
    training = _pool(text, "'trainer': {", ())
    rollout = _pool(text, "'rollout': {", ("'critic': {", "'data': {", "'trainer': {"))
    model = _MODEL.search(text)
    return Setup(
        rollout_gpus=rollout or training,
        training_gpus=training,
        colocated=bool(training) and not rollout,
        model=size_in(model[1]) if model else None,
    )


def _pool(text: str, begin: str, ends: tuple[str, ...]) -> int | None:
    """GPUs of a section of the configuration: nodes times GPUs a node, if it has both and they are not 0."""
    start = text.find(begin)
    if start < 0:
        return None
    stops = [found for end in ends if (found := text.find(end, start)) > 0]
    section = text[start : min(stops, default=start + 20_000)]
    gpus, nodes = _GPUS.search(section), _NODES.search(section)
    return int(gpus[1]) * int(nodes[1]) or None if gpus and nodes else None
