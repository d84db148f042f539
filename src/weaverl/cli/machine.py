"""The machine that a measurement ran on, as it is written beside the figures."""

import os
import platform
from pathlib import Path


def machine() -> dict[str, str | int | float | None]:
    """Processor, cores, load and versions."""
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "load_average": os.getloadavg()[0],
        "python": platform.python_version(),
        "system": platform.platform(),
    }


def processor(cpu_info: Path = Path("/proc/cpuinfo")) -> str:
    """The processor's model where the system tells it (Linux), else its architecture."""
    try:
        lines = cpu_info.read_text().splitlines()
    except OSError:
        lines = []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return next(filter(None, models), platform.processor() or platform.machine())
