from collections.abc import Callable
from pathlib import Path

import pytest

from weaverl.config.cluster_file import parse_cluster
from weaverl.config.job_file import parse_job
from weaverl.domain.cluster import Cluster
from weaverl.domain.jobs import JobSpec

JOB = """\
name: math-a
slo: 1.5
gpus: {rollout: 1, training: 1}
host_memory: {rollout: 64Mi, training: 128Mi}
roles: {rollout: {command: [python, rollout.py]}, training: {command: [python, train.py]}}
"""

CLUSTER = """\
name: laptop
pools:
  rollout: {gpu: H20, usd_per_gpu_hour: 1.85}
  training: {gpu: H800, usd_per_gpu_hour: 5.28}
nodes:
  - {name: r0, pool: rollout, devices: 8, device_memory: 48Mi, host_memory: 2Gi}
  - {name: t0, pool: training, devices: 8, device_memory: 48Mi, host_memory: 2Gi, device_ids: [8, 9, 10, 11, 12, 13, 14,
      15]}
"""


def _with_line(content: str, line: str) -> str:
    key = line.split(":")[0]
    kept = [old for old in content.splitlines() if not old.startswith(f"{key}:")]
    return "\n".join([*kept, line, ""])


@pytest.fixture
def job_with(tmp_path: Path) -> Callable[..., JobSpec]:
    """Read the smallest job with lines added, each in place of the line that has its key."""

    def read(*lines: str) -> JobSpec:
        content = JOB
        for line in lines:
            content = _with_line(content, line)
        return parse_job(content, directory=tmp_path)

    return read


@pytest.fixture
def cluster_with() -> Callable[..., Cluster]:
    """Read a cluster of 8 + 8 GPUs on one host with nodes or other lines added at the end."""

    def read(*lines: str) -> Cluster:
        return parse_cluster(CLUSTER + "\n".join([*lines, ""]))

    return read
