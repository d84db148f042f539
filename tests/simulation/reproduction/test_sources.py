import pytest

from shared_data import SHARED
from weaverl.errors import UsageError
from weaverl.simulation.reproduction.sources import DRIFTS, from_folder, generated, quick


def test_generated_traces_are_of_every_kind_and_quick_takes_the_first_of_each():
    sources = generated(2)
    assert len(sources.production) == len(sources.philly) == 2
    assert {kind: len(traces) for kind, traces in sources.drifted.items()} == dict.fromkeys(DRIFTS, 2)
    short = quick(sources, 10)
    assert len(short.production) == 1
    before, after = sources.production[0].jobs[0], short.production[0].jobs[0]
    assert after.iterations == round(before.iterations / 10)
    assert after.arrival_seconds == pytest.approx(before.arrival_seconds / 10)


def test_a_folder_that_is_none_is_told(tmp_path):
    with pytest.raises(UsageError, match="is not a folder"):
        from_folder(tmp_path / "nowhere")


@pytest.mark.skipif(not (SHARED / "data" / "traces").is_dir(), reason="needs ../shared/data/traces")
def test_the_shared_traces_are_told_apart_by_their_names():
    sources = from_folder(SHARED / "data" / "traces")
    assert [trace.name for trace in sources.production] == [f"production-200-s{seed}" for seed in range(3)]
    assert [trace.name for trace in sources.philly] == [f"philly-300-s{seed}" for seed in range(3)]
    assert [trace.name for trace in sources.drifted["mixed"]] == [f"production-200-mixed-s{seed}" for seed in range(3)]
