"""Field cases YM-01, YM-02, YM-04 and TR-25 as a job file meets them."""

from pathlib import Path

import pytest

from weaverl.config.job_file import load_job, parse_job
from weaverl.domain.jobs import HostMemory, PhaseProfile, Placement, Role
from weaverl.errors import SpecError

PROFILE = "profile: {rollout_max: 2.4s, rollout_mean: 2.2s, training: 2.1s"


def test_the_smallest_job_gets_the_defaults(job_with, tmp_path):
    job = job_with()
    assert (job.name, job.tenant, job.slo, job.priority) == ("math-a", "default", 1.5, 0)
    assert (job.rollout_gpus, job.training_gpus) == (1, 1)
    assert job.host_memory == HostMemory(rollout_bytes=67_108_864, training_bytes=134_217_728)
    assert job.roles == (
        Role(name="rollout", command=("python", "rollout.py")),
        Role(name="training", command=("python", "train.py")),
    )
    assert job.placement is Placement.DISAGGREGATED
    assert job.working_directory == str(tmp_path)
    assert (job.profile, job.iterations, job.deadline_seconds, job.max_phase_seconds) == (None, None, None, None)
    assert (job.checkpoint_directory, job.environment, job.max_retries) == (None, {}, 0)


def test_a_whole_job_file_is_read(tmp_path):
    (tmp_path / "code").mkdir()
    path = tmp_path / "job.yaml"
    path.write_text(
        """\
name: math-a
tenant: research
slo: 1e1
priority: -3
placement: disaggregated
gpus: {rollout: 8, training: 4}
host_memory: {rollout: 2.1Gi, training: 64 GiB}
iterations: 12
profile:
  rollout_max: 2.4s
  rollout_mean: 2200ms
  rollout_cv: 0.1
  training: 2.1s
  sync: 0.05s
  other: 0s
  rollout_switch: 900ms
roles:
  training: {command: "python 'my train.py' --steps 100"}
  rollout: {command: [python, rollout.py, "100"], processes_per_node: 2}
  driver:
    command: python driver.py
working_directory: code
environment: {OMP_NUM_THREADS: "1", EMPTY: ""}
checkpoint_directory: ckpt
max_phase: 30min
deadline: 48h
max_retries: 1
"""
    )
    job = load_job(path)
    assert (job.tenant, job.slo, job.priority) == ("research", 10.0, -3)
    assert job.host_memory == HostMemory(rollout_bytes=2_254_857_831, training_bytes=68_719_476_736)
    assert job.profile == PhaseProfile(
        rollout_max_seconds=2.4,
        rollout_mean_seconds=2.2,
        rollout_cv=0.1,
        training_seconds=2.1,
        sync_seconds=0.05,
        other_seconds=0.0,
        rollout_switch_seconds=0.9,
        training_switch_seconds=None,
    )
    assert job.roles == (
        Role(name="driver", command=("python", "driver.py")),
        Role(name="rollout", command=("python", "rollout.py", "100"), processes_per_node=2),
        Role(name="training", command=("python", "my train.py", "--steps", "100")),
    )
    assert job.working_directory == str(tmp_path / "code")
    assert job.checkpoint_directory == str(tmp_path / "ckpt")
    assert job.environment == {"OMP_NUM_THREADS": "1", "EMPTY": ""}
    assert (job.max_phase_seconds, job.deadline_seconds, job.max_retries) == (1800.0, 172800.0, 1)


def test_directories_are_relative_to_the_job_file_not_to_where_the_reader_runs(tmp_path, monkeypatch):
    (tmp_path / "job.yaml").write_text(
        "name: a\nslo: 1\nplacement: local\ngpus: {rollout: 1, training: 1}\n"
        "host_memory: {rollout: 1Mi, training: 1Mi}\nroles: {run: {command: python}}\n"
    )
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert load_job(Path("../job.yaml")).working_directory == str(tmp_path / "elsewhere" / "..")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("slo: 0.5", "slo: must be at least 1, got '0.5': raise it"),
        ("slo: 0.9999999999999999999", "slo: must be at least 1, got '0.9999999999999999999': raise it"),
        ("slo: nan", "slo: expected a number, got 'nan': write plain decimal digits such as 12 or 1.5"),
        ("slo: .inf", "slo: expected a number, got '.inf': write plain decimal digits such as 12 or 1.5"),
        ("slo: 1e308", "slo: must be at most 1,000,000,000, got '1e308': lower it"),
        ('slo: "9"', "slo: expected a number, got the text '9': write it without quotes"),
        ("slo: 1_000", "slo: expected a number, got '1_000': write plain decimal digits such as 12 or 1.5"),
        ("slo: 22:10", "slo: expected a number, got '22:10': write plain decimal digits such as 12 or 1.5"),
        ("slo: no", "slo: expected a number, got 'no': write plain decimal digits such as 12 or 1.5"),
        ("slo: [2]", "slo: expected a number, got a list of 1: give a single value"),
        ("slo:", "slo: has no value, '': give one, or leave the key out"),
        ("slo: ~", "slo: has no value, '~': give one, or leave the key out"),
        ("gpus: 8", "gpus: expected the keys rollout, training, got '8': write key: value"),
        ("gpus: {rollout: 8}", "gpus: the key 'training' is missing: add it"),
        (
            "gpus: {rollout: 010, training: 1}",
            "gpus.rollout: expected a number, got '010': write plain decimal digits such as 12 or 1.5",
        ),
        ("gpus: {rollout: 0, training: 1}", "gpus.rollout: must be at least 1, got '0': raise it"),
        ("gpus: {rollout: 1, training: -8}", "gpus.training: must be at least 1, got '-8': raise it"),
        ("gpus: {rollout: 1.5, training: 1}", "gpus.rollout: expected a whole number, got '1.5': write 1"),
        ("name: no", "name: expected text, got 'no', a boolean to YAML: write \"no\""),
        ("name: 22:10", "name: expected text, got '22:10', a base-60 number to YAML: write \"22:10\""),
        ("name: 2026-01-31", "name: expected text, got '2026-01-31', a date to YAML: write \"2026-01-31\""),
        ("name: 1e3", "name: expected text, got '1e3', a number to YAML: write \"1e3\""),
        ('name: ""', "name: empty text, '': give a value, or leave the key out"),
        ("name: Math", "name: not a name, 'Math': use up to 63 of a-z, 0-9 and -, with no hyphen at either end"),
        ("name: a-", "name: not a name, 'a-': use up to 63 of a-z, 0-9 and -, with no hyphen at either end"),
        ('name: "a\\n"', "name: not a name, 'a\\n': use up to 63 of a-z, 0-9 and -, with no hyphen at either end"),
        (f"name: {'a' * 64}", f"name: not a name, '{'a' * 60}...': use up to 63 of a-z, 0-9 and -"),
        ("tenant: a/b", "tenant: not a name, 'a/b': use up to 63 of a-z, 0-9 and -"),
        ("priority: 1e30", "priority: must be at most 1,000,000, got '1e30': lower it"),
        ("placement: colocated", "placement: not one of the choices, 'colocated': write disaggregated or local"),
        ("host_memory: {rollout: 500m, training: 1Gi}", "host_memory.rollout: unknown unit, got '500m'"),
        ("host_memory: {rollout: 64, training: 1Gi}", "host_memory.rollout: the unit is missing, got '64'"),
        ("host_memory: {rollout: -1Gi, training: 1Gi}", "host_memory.rollout: must be above zero, got '-1Gi'"),
        ("host_memory: {rollout: [1Gi], training: 1Gi}", "host_memory.rollout: expected a size such as 64Gi"),
        ("max_phase: 30", "max_phase: the unit is missing, got '30': write it like 1.5s"),
        ("max_phase: 18:30", "max_phase: not a number with a unit, got '18:30': write it like 1.5s"),
        ("deadline: 0h", "deadline: must be above zero, got '0h'"),
        ("max_retries: -1", "max_retries: must be at least 0, got '-1': raise it"),
        ("iterations: 0", "iterations: must be at least 1, got '0': raise it"),
        ("max_retry: 1", "max_retry: unknown key 'max_retry': did you mean max_retries?"),
        ("zebra: 1", "zebra: unknown key 'zebra': the keys here are name, tenant, slo"),
        ("<<: {a: 1}", "'<<': unknown key '<<': the keys here are name"),
        ("working_directory: none", "working_directory: not a directory, '"),
        ("checkpoint_directory: none/ckpt", "checkpoint_directory: its parent is not a directory, '"),
        ("environment: {WEAVERL_JOB: a}", "environment.WEAVERL_JOB: weaverl sets 'WEAVERL_JOB' itself: choose another"),
        (
            "environment: {OMP_NUM_THREADS: 1}",
            "environment.OMP_NUM_THREADS: expected text, got '1', a number to YAML: write \"1\"",
        ),
        ("environment: {A: }", "environment.A: has no value, ''"),
        ("environment: {2A: b}", "environment.'2A': not a variable's name, '2A': use letters, digits and _"),
        ("environment: [A]", "environment: expected variables, got a list of 1"),
        (PROFILE + ", rollout_cv: -1}", "profile.rollout_cv: must be at least 0, got '-1': raise it"),
        (PROFILE + ", sync: nan}", "profile.sync: not a number with a unit, got 'nan': write it like 1.5s"),
        (PROFILE + ", training: 1s}", "profile.training: the key is given twice, first on line 6: keep one of them"),
        ("profile: {rollout_max: 1s, training: 1s}", "profile: the key 'rollout_mean' is missing: add it"),
        ("profile: {rollout_max: 0s, rollout_mean: 1s, training: 1s}", "profile.rollout_max: must be above zero"),
        (
            "profile: {rollout_max: 1s, rollout_mean: 2s, training: 1s}",
            "profile.rollout_mean: the mean is above rollout_max, 2s > 1s: rollout_max is the rollout at the",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_in_one_line(job_with, line, message):
    with pytest.raises(SpecError) as caught:
        job_with(line)
    file, number, rest = str(caught.value).split(":", 2)
    assert file == "JOB.yaml"
    assert int(number) >= 1
    assert rest.removeprefix(" ").startswith(message)
    assert len(str(caught.value).splitlines()) == 1


ROLES_LINE = "roles: {rollout: {command: a}, training: {command: b}"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("roles: {rollout: {command: a}}", "roles: the key 'training' is missing: add it"),
        (
            "roles: {run: {command: a}}",
            "not the roles of a disaggregated job, run: write placement: local, or the roles",
        ),
        (ROLES_LINE + ", run: {command: c}}", "roles.run: unknown key 'run': the keys here are driver"),
        (ROLES_LINE + ", drivr: {command: c}}", "roles.drivr: unknown key 'drivr': did you mean driver?"),
        (ROLES_LINE + ", driver: {}}", "roles.driver: the key 'command' is missing: add it"),
        (ROLES_LINE + ", driver: {command: []}}", "roles.driver.command: the list is empty: give at least one item"),
        (ROLES_LINE + ', driver: {command: " "}}', "roles.driver.command: no program to run, ' ': begin with one"),
        (ROLES_LINE + ', driver: {command: "a \'b"}}', 'cannot be split into words, "a \'b", No closing quotation'),
        (
            ROLES_LINE + ", driver: {command: [python, --steps, 100]}}",
            "roles.driver.command[2]: expected text, got '100', a number to YAML: write \"100\"",
        ),
        (
            ROLES_LINE + ", driver: {command: a, processes_per_node: 0}}",
            "roles.driver.processes_per_node: must be at least 1, got '0': raise it",
        ),
    ],
)
def test_roles_that_do_not_make_a_job_are_refused(job_with, line, message):
    with pytest.raises(SpecError) as caught:
        job_with(line)
    assert message in str(caught.value)


def test_a_local_job_has_the_one_role_run(job_with):
    job = job_with("placement: local", 'roles: {run: {command: [python, -c, ""]}}')
    assert job.roles == (Role(name="run", command=("python", "-c", "")),)
    with pytest.raises(SpecError, match="not the roles of a local job, rollout, training: write placement: disagg"):
        job_with("placement: local")


def test_a_key_path_and_line_lead_to_the_fault(job_with):
    with pytest.raises(SpecError, match=r"^JOB\.yaml:6: profile\.training: the unit is missing, got '2'"):
        job_with("profile: {rollout_max: 2.4s, rollout_mean: 2.2s, training: 2}")


def test_a_missing_required_key_is_named(tmp_path):
    content = "gpus: {rollout: 1, training: 1}\nname: math-a\n"
    with pytest.raises(SpecError, match=r"^JOB\.yaml:1: the key 'slo' is missing: add it$"):
        parse_job(content, directory=tmp_path)


def test_a_checkpoint_directory_may_exist_but_not_as_a_file(job_with, tmp_path):
    (tmp_path / "ckpt").mkdir()
    assert job_with("checkpoint_directory: ckpt").checkpoint_directory == str(tmp_path / "ckpt")
    (tmp_path / "plain").write_text("")
    with pytest.raises(SpecError, match=r"exists and is not a directory, '.*plain': name another"):
        job_with("checkpoint_directory: plain")


def test_a_directory_name_too_long_for_the_system_is_refused(job_with):
    with pytest.raises(SpecError, match="not a directory"):
        job_with(f"working_directory: {'a' * 5000}")


def test_the_next_rollout_of_a_job_with_staleness_1_may_run_beside_training(job_with):
    profile = "profile: {rollout_max: 3s, rollout_mean: 2s, training: 1s}"
    assert job_with(profile).staleness == job_with(profile).profile.staleness == 0
    job = job_with("staleness: 1", profile)
    assert job.staleness == job.profile.staleness == 1


@pytest.mark.parametrize(
    "line",
    [
        "staleness: 2",
        "staleness: unbounded",
        "staleness: [1]",
        "asynchronous: true",
        "async: true",
        "fully_async: true",
        "fully_asynchronous: true",
    ],
)
def test_a_fully_asynchronous_job_is_refused_by_name(job_with, line):
    with pytest.raises(SpecError) as refusal:
        job_with(line)
    message = str(refusal.value)
    assert "\n" not in message and line.split(":")[0] in message
    assert "write staleness: 1 (the next rollout may run beside training) or leave it out (synchronous)" in message
    assert "weaverl runs no fully asynchronous job" in message


def test_staleness_is_a_whole_number(job_with):
    with pytest.raises(SpecError, match="whole number"):
        job_with("staleness: 0.5")
    with pytest.raises(SpecError, match="at least 0"):
        job_with("staleness: -1")


def test_a_local_job_has_no_room_for_two_phases_at_once(job_with):
    with pytest.raises(SpecError, match="write placement: disaggregated, or leave staleness out"):
        job_with("placement: local", "staleness: 1", "roles: {run: {command: [python, run.py]}}")
