import re
from pathlib import Path

import pytest

from weaverl.config import cluster_file, job_file
from weaverl.config.checks import check_job_fits
from weaverl.config.cluster_file import load_cluster, parse_cluster
from weaverl.config.job_file import parse_job
from weaverl.config.units import BYTES, SECONDS
from weaverl.domain.cluster import PoolKind

ROOT = Path(__file__).parents[2]
JOB_PAGE = (ROOT / "docs" / "job-file.md").read_text()
CLUSTER_PAGE = (ROOT / "docs" / "cluster-file.md").read_text()


def yaml_blocks(page: str) -> list[str]:
    return re.findall(r"```yaml\n(.*?)```", page, flags=re.DOTALL)


def test_the_jobs_in_the_docs_are_read_and_fit_the_cluster_in_the_docs(tmp_path):
    (cluster,) = [parse_cluster(block) for block in yaml_blocks(CLUSTER_PAGE)]
    jobs = [parse_job(block, directory=tmp_path) for block in yaml_blocks(JOB_PAGE)]
    assert [job.name for job in jobs] == ["math-a", "tiny"]
    for job in jobs:
        check_job_fits(job, cluster)


def test_the_whole_job_in_the_docs_shows_every_key():
    whole = yaml_blocks(JOB_PAGE)[0]
    for key in (*job_file.JOB_KEYS, *job_file.PROFILE_KEYS, *job_file.ROLE_KEYS):
        assert re.search(rf"\b{key}:", whole), key


@pytest.mark.parametrize(
    ("page", "keys"),
    [
        (JOB_PAGE, (*job_file.JOB_KEYS, *job_file.PROFILE_KEYS, *job_file.ROLE_KEYS)),
        (
            CLUSTER_PAGE,
            (
                *cluster_file.CLUSTER_KEYS,
                *cluster_file.STORE_KEYS,
                *cluster_file.POOL_KEYS,
                *cluster_file.NODE_KEYS,
            ),
        ),
    ],
)
def test_the_tables_of_the_docs_have_every_key_and_no_other(page, keys):
    reference = page.partition("## How values are written")[0]
    assert sorted(re.findall(r"^\| `(\w+)` \|", reference, flags=re.MULTILINE)) == sorted(keys)


def test_the_unit_table_of_the_docs_is_the_one_in_force():
    table = JOB_PAGE.partition("| size | bytes |")[2]
    cells = re.findall(r"((?:`\w+`(?:, )?)+) \| ([\d,.]+)", table)
    documented = {unit: float(value.replace(",", "")) for units, value in cells for unit in re.findall(r"\w+", units)}
    assert documented == {**BYTES, **{unit: float(value) for unit, value in SECONDS.items()}}


@pytest.mark.parametrize(("file", "devices"), [("laptop", (1, 1)), ("two-gpus", (1, 1)), ("two-nodes", (8, 8))])
def test_the_example_clusters_are_read(file, devices):
    cluster = load_cluster(ROOT / "examples" / "clusters" / f"{file}.yaml")
    assert cluster.name == file
    assert tuple(sum(node.num_devices for node in cluster.nodes if node.pool is pool) for pool in PoolKind) == devices


def test_the_two_gpus_of_one_host_are_in_different_pools():
    nodes = load_cluster(ROOT / "examples" / "clusters" / "two-gpus.yaml").nodes
    assert [(node.host, node.device_ids, node.accelerator) for node in nodes] == [
        ("localhost", (0,), "cuda"),
        ("localhost", (1,), "cuda"),
    ]
