"""What a rank reads of its environment."""

from pathlib import Path

import pytest

from weaverl.domain.cluster import Slot
from weaverl.domain.events import RankId
from weaverl.errors import SpecError
from weaverl.runtime.environment import mode, read_environment


@pytest.fixture
def given(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "password").write_text("secret\n")
    return {
        "WEAVERL_URL": "unix:///run/store",
        "WEAVERL_PASSWORD_FILE": str(tmp_path / "password"),
        "WEAVERL_JOB": "math",
        "WEAVERL_ATTEMPT": "2",
        "WEAVERL_ROLE": "rollout",
        "WEAVERL_RANK": "1",
        "WEAVERL_WORLD_SIZE": "2",
        "WEAVERL_ROLE_SIZES": "driver=1,rollout=2,training=2",
        "WEAVERL_NODE": "rollout-0",
        "WEAVERL_SLOTS": "rollout-0:2,rollout-0:3",
        "WEAVERL_LEDGER": str(tmp_path),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29500",
    }


def test_a_rank_knows_its_job_its_slots_and_where_to_meet(given):
    rank = read_environment(given)
    assert rank is not None
    assert rank.rank == RankId("math", 2, "rollout", 1)
    assert rank.slots == (Slot("rollout-0", 2), Slot("rollout-0", 3))
    assert rank.role_sizes == {"driver": 1, "rollout": 2, "training": 2}
    assert (rank.password, rank.master, rank.master_fd) == ("secret", ("127.0.0.1", 29500), None)


def test_a_driver_has_no_slots(given):
    rank = read_environment({**given, "WEAVERL_ROLE": "driver", "WEAVERL_SLOTS": ""})
    assert rank is not None and rank.slots == ()


def test_without_a_url_a_process_is_alone():
    assert read_environment({}) is None


def test_what_is_missing_is_named(given):
    del given["WEAVERL_ATTEMPT"]
    with pytest.raises(SpecError, match="WEAVERL_URL is set but WEAVERL_ATTEMPT is not: unset both to run alone"):
        read_environment(given)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("WEAVERL_ATTEMPT", "second"),
        ("WEAVERL_RANK", ""),
        ("WEAVERL_SLOTS", "rollout-0"),
        ("WEAVERL_ROLE_SIZES", "rollout"),
        ("WEAVERL_ROLE_SIZES", "rollout=many"),
        ("MASTER_PORT", "http"),
        ("WEAVERL_MASTER_FD", "none"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_value(given, variable, value):
    with pytest.raises(SpecError, match=f"{variable} is '{value}', which is not what an agent sets"):
        read_environment({**given, variable: value})


def test_a_password_file_that_is_gone_is_named(given):
    Path(given["WEAVERL_PASSWORD_FILE"]).unlink()
    with pytest.raises(SpecError, match=r"WEAVERL_PASSWORD_FILE .* cannot be read: No such file"):
        read_environment(given)


def test_the_mode_is_permits_unless_it_says_observe():
    assert (mode({}), mode({"WEAVERL_MODE": ""}), mode({"WEAVERL_MODE": "observe"})) == (
        "permits",
        "permits",
        "observe",
    )
    with pytest.raises(SpecError, match="WEAVERL_MODE is 'watch': set it to one of permits, observe, or unset it"):
        mode({"WEAVERL_MODE": "watch"})
