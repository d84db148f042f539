"""The machine that a measurement ran on, as it is written beside the figures."""

import os
import platform


def machine() -> dict[str, str | int | float | None]:
    """Processor, cores, load and versions."""
    return {
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "load_average": os.getloadavg()[0],
        "python": platform.python_version(),
        "system": platform.platform(),
    }
