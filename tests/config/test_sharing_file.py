import re
from pathlib import Path

import pytest

from weaverl.config import sharing as keys
from weaverl.config.cluster_file import parse_cluster
from weaverl.config.sharing import load_sharing
from weaverl.domain.sharing import Deadlines, Measure, Preemption, Sharing
from weaverl.errors import SpecError

PAGE = (Path(__file__).parents[2] / "docs" / "sharing.md").read_text()
CLUSTER = (Path(__file__).parents[2] / "examples" / "clusters" / "laptop.yaml").read_text()


def read(tmp_path: Path, content: str) -> Sharing:
    path = tmp_path / "sharing.yaml"
    path.write_text(content)
    return load_sharing(path)


def test_every_key_is_read(tmp_path):
    assert read(
        tmp_path,
        "sharing:\n"
        "  by: gpu_hours\n"
        "  tenants: {research: 3, product: 0.5}\n"
        "  half_life: 48h\n"
        "  ageing: 12h\n"
        "  preemption: {from_priority: 2, most_per_job: 1, least_stay: 10min}\n"
        "  deadlines: {first_start: 90s}\n",
    ) == Sharing(
        by=Measure.GPU_HOURS,
        tenants={"research": 3.0, "product": 0.5},
        half_life_seconds=48 * 3600.0,
        ageing_seconds=12 * 3600.0,
        preemption=Preemption(from_priority=2, most_per_job=1, least_stay_seconds=600.0),
        deadlines=Deadlines(first_start_seconds=90.0),
    )


def test_what_is_left_out_is_off_or_has_its_default(tmp_path):
    assert read(tmp_path, "sharing: {by: dollars}\n") == Sharing()
    assert read(tmp_path, "sharing: {by: dollars, preemption: {from_priority: 1}}\n").preemption == Preemption()


def test_a_cluster_without_the_key_is_not_shared_and_with_it_is():
    assert parse_cluster(CLUSTER).sharing is None
    assert parse_cluster(CLUSTER + "\nsharing: {tenants: {a: 2}}\n").sharing == Sharing(tenants={"a": 2.0})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("sharing: {by: euros}", "sharing.by: not one of the choices, 'euros': write dollars or gpu_hours"),
        ("sharing: {tenants: {a: 0}}", "sharing.tenants.a: must be above 0, got '0': raise it"),
        ("sharing: {tenants: [a]}", "expected weights, got a list"),
        ("sharing: {half_life: 1ms}", "must be at least 1 s"),
        ("sharing: {ageing: 24}", "sharing.ageing"),
        ("sharing: {preemption: {most_per_job: 0}}", "must be at least 1"),
        ("sharing: {deadline: {}}", "did you mean deadlines?"),
        ("policy: weave", "unknown key"),
    ],
)
def test_what_is_wrong_is_refused_with_its_place(tmp_path, content, message):
    with pytest.raises(SpecError, match=re.escape(message)):
        read(tmp_path, content)


def test_the_tables_of_the_page_have_every_key_and_no_other_and_its_example_is_read(tmp_path):
    told = re.findall(r"^\| `(\w+)` \|", PAGE, flags=re.MULTILINE)
    assert sorted(told) == sorted((*keys.SHARING_KEYS, *keys.PREEMPTION_KEYS, *keys.DEADLINE_KEYS))
    (example,) = re.findall(r"```yaml\n(.*?)```", PAGE, flags=re.DOTALL)
    assert read(tmp_path, example).preemption is not None
