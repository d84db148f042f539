"""Small trace files for tests: a good row of our schema, and ways to spoil it."""

import io
import tarfile
from pathlib import Path

GOOD = {
    "job_id": "j0",
    "tenant": "t0",
    "arrival_s": "10",
    "iterations": "100",
    "model_b": "7",
    "max_tokens": "8192",
    "turns": "1",
    "rollout_gpus": "8",
    "training_gpus": "8",
    "rollout_max_s": "120.5",
    "rollout_mean_s": "80",
    "rollout_cv": "0.2",
    "rollout_p80": "0.5",
    "training_s": "75",
    "sync_gib": "13.0385",
    "rollout_host_gib": "164.3",
    "training_host_gib": "197.3",
    "slo": "1.5",
    "rollout_growth": "1",
}


def row(**changes: str) -> str:
    return ",".join({**GOOD, **changes}.values())


def table(*rows: str, end: str = "\n") -> str:
    return end.join([",".join(GOOD), *rows, ""])


def written(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def tar_gz(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz", format=tarfile.PAX_FORMAT, pax_headers={"LIBARCHIVE.xattr.x": "y"}) as archive:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path
