"""What GPUs can do, from their data sheets: dense bf16 rate, memory bandwidth, memory."""

import msgspec

from weaverl.errors import UsageError


class GpuKind(msgspec.Struct, frozen=True):
    """One GPU: dense bf16 teraflops, terabytes a second of memory bandwidth, gigabytes (10^9) of memory."""

    name: str
    bf16_tflops: float
    bandwidth_tb_s: float
    memory_gb: float


GPUS = tuple(
    GpuKind(*row)
    for row in (
        ("H20", 148.0, 4.0, 96.0),
        ("H100", 989.0, 3.35, 80.0),
        ("H800", 989.0, 3.35, 80.0),
        ("H200", 989.0, 4.8, 141.0),
        ("B200", 2250.0, 8.0, 180.0),
        ("A100", 312.0, 2.04, 80.0),
        ("A800", 312.0, 2.04, 80.0),
        ("L40S", 362.0, 0.864, 48.0),
        ("L20", 119.5, 0.864, 48.0),
    )
)


def gpu_kind(name: str) -> GpuKind:
    """The GPU of a name, in any case. Raises UsageError with the names there are."""
    found = next((gpu for gpu in GPUS if gpu.name == name.upper()), None)
    if found is None:
        known = ", ".join(gpu.name for gpu in GPUS)
        raise UsageError(f"GPU {name!r} is not known: give one of {known}, or the nearest to yours")
    return found
