"""Shapes of known language models, and the nearest of them for a bare size."""

import re
from math import log

import msgspec

from weaverl.errors import UsageError

_SIZE = re.compile(r"(?<![0-9A-Za-z.])([0-9]+(?:\.[0-9]+)?)[bB](?![A-Za-z0-9])")
_ACTIVE = re.compile(r"(?<![A-Za-z])[aA][0-9]+(\.[0-9]+)?[bB]|[0-9]x[0-9]", re.ASCII)
BYTES_PER_WEIGHT = 2
"""bf16, for serving and for the key-value cache."""


class ModelShape(msgspec.Struct, frozen=True):
    """What the estimates need of a dense decoder; ``attention_width`` is query heads times head size."""

    name: str
    billions: float
    layers: int
    attention_width: int
    kv_heads: int
    head_size: int

    @property
    def parameters(self) -> float:
        """Number of parameters."""
        return self.billions * 1e9

    @property
    def weight_bytes(self) -> float:
        """One copy of the weights in bf16."""
        return self.parameters * BYTES_PER_WEIGHT

    @property
    def kv_bytes_per_token(self) -> float:
        """Keys and values of one token in all layers, in bf16."""
        return 2 * self.layers * self.kv_heads * self.head_size * BYTES_PER_WEIGHT

    def attention_flops_per_token(self, context_tokens: float) -> float:
        """Scores and weighted sum of one new token against its context: two multiply-adds a width and position."""
        return 4 * self.layers * self.attention_width * context_tokens


MODELS = tuple(
    ModelShape(*row)
    for row in (
        ("Qwen2.5-0.5B", 0.494, 24, 896, 2, 64),
        ("Qwen3-0.6B", 0.596, 28, 2048, 8, 128),
        ("Llama-3.2-1B", 1.236, 16, 2048, 8, 64),
        ("Qwen2.5-1.5B", 1.544, 28, 1536, 2, 128),
        ("Qwen3-1.7B", 1.721, 28, 2048, 8, 128),
        ("Qwen2.5-3B", 3.086, 36, 2048, 2, 128),
        ("Llama-3.2-3B", 3.213, 28, 3072, 8, 128),
        ("Qwen3-4B", 4.022, 36, 4096, 8, 128),
        ("Qwen2.5-7B", 7.616, 28, 3584, 4, 128),
        ("Llama-3.1-8B", 8.030, 32, 4096, 8, 128),
        ("Qwen3-8B", 8.191, 36, 4096, 8, 128),
        ("Qwen2.5-14B", 14.770, 48, 5120, 8, 128),
        ("Qwen3-14B", 14.768, 40, 5120, 8, 128),
        ("Qwen2.5-32B", 32.764, 64, 5120, 8, 128),
        ("Qwen3-32B", 32.762, 64, 8192, 8, 128),
        ("Llama-3.1-70B", 70.554, 80, 8192, 8, 128),
        ("Qwen2.5-72B", 72.706, 80, 8192, 8, 128),
    )
)


def size_in(name: str) -> str | None:
    """The billions of parameters that a dense model's name says, as ``DeepSeek-R1-Distill-Qwen-7B`` does."""
    plain = name.rsplit("/", 1)[-1]
    found = _SIZE.findall(plain)
    return found[0] if len(found) == 1 and not _ACTIVE.search(plain) else None


def model_shape(text: str) -> ModelShape:
    """A known model by name (``Qwen/Qwen2.5-7B-Instruct``), or a size (``7``, ``14B``) with the nearest known shape.

    Raises UsageError for anything else, mixtures of experts among them.
    """
    plain = text.strip().rsplit("/", 1)[-1].lower()
    named = [model for model in MODELS if plain == model.name.lower() or plain.startswith(f"{model.name.lower()}-")]
    if named:
        return named[0]
    try:
        billions = float(size_in(plain) or plain)
    except ValueError:
        billions = 0.0
    if not 0.05 <= billions <= 2000:
        known = ", ".join(model.name for model in MODELS)
        raise UsageError(f"model {text!r} is not known: give its billions of parameters, such as 7, or one of {known}")
    nearest = min(MODELS, key=lambda model: abs(log(model.billions / billions)))
    return msgspec.structs.replace(nearest, name=f"{billions:g}B (shape of {nearest.name})", billions=billions)
