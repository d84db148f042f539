"""Timing logs in the shapes that people have them, and every way that they are damaged."""

import csv
import io
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from weaverl.errors import UsageError
from weaverl.simulation.timing_formats import NOT_A_NUMBER, TORN
from weaverl.simulation.timing_logs import (
    NO_ROLLOUT,
    NO_TRAINING,
    REPEATED,
    WARMING,
    Iteration,
    LogSource,
    Run,
    read_runs,
)


def verl_line(step: int, rollout: float, update: float, *more: str) -> str:
    parts = [
        f"step:{step}",
        "global_seqlen/min:484245.000",
        "timing_s/reshard:0.400",
        f"timing_s/gen:{rollout:.3f}",
        "timing_s/reward:2.000",
        "timing_s/old_log_prob:5.000",
        f"timing_s/update_actor:{update:.3f}",
        *more,
        f"timing_s/step:{rollout + update + 10:.3f}",
        "timing_per_token_ms/gen:0.024",
    ]
    return " - ".join(parts)


VERL = [verl_line(step, 80 + step, 40) for step in range(1, 7)]


def written(folder: Path, text: str | bytes, name: str = "math.log") -> LogSource:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return LogSource(path)


def run_of(folder: Path, text: str | bytes, name: str = "math.log", warm_up: int = 0) -> Run:
    (run,) = read_runs([written(folder, text, name)], warm_up)
    return run


def lines(entries: list[dict[str, object]]) -> str:
    return "".join(json.dumps(entry) + "\n" for entry in entries)


def test_verl_console_lines_with_prefix_colours_and_progress_bars(tmp_path: Path):
    prefix = "\x1b[36m(TaskRunner pid=1234)\x1b[0m "
    noise = f"{prefix}step:0 - val-core/openai/gsm8k/reward/mean@1:0.565\n"
    bars = "Training Progress:  3%|3  | 3/100 [01:02<04:05]\r"
    run = run_of(tmp_path, noise + "".join(f"{bars}{prefix}{line}\n" for line in VERL))
    assert run.framework == "veRL" and run.name == "math"
    assert run.iterations[0] == Iteration(rollout=81.0, training=45.0, sync=0.0, other=5.0)
    assert [one.rollout for one in run.iterations] == [81.0, 82.0, 83.0, 84.0, 85.0, 86.0]


def test_a_sync_that_was_logged_is_no_part_of_other(tmp_path: Path):
    run = run_of(tmp_path, "\n".join(verl_line(n, 80, 40, "timing_s/update_weights:3.000") for n in range(3)) + "\n")
    assert run.iterations[0] == Iteration(rollout=80.0, training=45.0, sync=3.0, other=2.0)


def test_numpy_prints_its_type_around_a_number(tmp_path: Path):
    text = "".join(f"{line}\n" for line in VERL).replace("timing_s/gen:81.000", "timing_s/gen:np.float64(81.0)")
    assert run_of(tmp_path, text).iterations[0].rollout == 81.0


def test_the_first_two_iterations_warm_up_but_three_are_kept(tmp_path: Path):
    text = "".join(f"{line}\n" for line in VERL)
    assert [one.rollout for one in run_of(tmp_path, text, warm_up=2).iterations] == [83.0, 84.0, 85.0, 86.0]
    assert run_of(tmp_path, text, warm_up=2).skipped == {WARMING: 2}
    assert [one.rollout for one in run_of(tmp_path, text, warm_up=9).iterations] == [84.0, 85.0, 86.0]
    with pytest.raises(UsageError, match="2 iterations of math have all their times: give a log with 3 or more"):
        run_of(tmp_path, "".join(f"{line}\n" for line in VERL[:2]))


def test_profile_is_the_longest_rollout_and_means(tmp_path: Path):
    profile = run_of(tmp_path, "".join(f"{verl_line(n, r, 40)}\n" for n, r in enumerate((60, 80, 100)))).profile()
    assert (profile.rollout_max_seconds, profile.rollout_mean_seconds, profile.training_seconds) == (100, 80, 45)
    assert profile.rollout_cv == pytest.approx((800 / 3) ** 0.5 / 80)


def test_a_step_logged_again_after_a_restart_counts_once_as_it_was_then(tmp_path: Path):
    run = run_of(tmp_path, "".join(f"{line}\n" for line in [*VERL[:4], verl_line(3, 200, 40), verl_line(4, 210, 40)]))
    assert [one.rollout for one in run.iterations] == [81.0, 82.0, 200.0, 210.0]
    assert run.skipped == {REPEATED: 2}


FILE_LOGGER = [
    {"step": n, "data": {"timing_s/gen": 100.0 + n, "timing_s/update_actor": 50.0, "timing_s/step": 160.0 + n}}
    for n in range(1, 5)
]


def test_json_lines_of_verls_file_logger(tmp_path: Path):
    run = run_of(tmp_path, lines(FILE_LOGGER), "chat.jsonl")
    assert run.iterations[0] == Iteration(rollout=101.0, training=50.0, sync=0.0, other=10.0)
    assert len(run.iterations) == 4 and run.skipped == {}


def test_a_torn_last_line_is_skipped_once_wherever_it_is_cut(tmp_path: Path):
    whole = lines(FILE_LOGGER).encode()
    for cut in range(2, 60):
        run = run_of(tmp_path, whole[:-cut], "chat.jsonl")
        assert len(run.iterations) == 3 and run.skipped == {TORN: 1}
    assert len(run_of(tmp_path, whole[:-1], "chat.jsonl").iterations) == 4


def test_a_console_line_without_its_end_may_be_cut_within_a_number(tmp_path: Path):
    run = run_of(tmp_path, "\n".join(VERL))
    assert len(run.iterations) == 5 and run.skipped == {TORN: 1}


@pytest.mark.parametrize("bad", ["[]", "null", "12"])
def test_a_last_line_that_is_json_but_no_object_is_damage(tmp_path: Path, bad: str):
    with pytest.raises(UsageError, match="line 5: not a JSON object"):
        run_of(tmp_path, lines(FILE_LOGGER) + bad, "chat.jsonl")


def test_a_bad_line_in_the_middle_is_named(tmp_path: Path):
    text = lines(FILE_LOGGER[:2]) + '{"step": 3, "da\n' + lines(FILE_LOGGER[2:])
    with pytest.raises(UsageError, match="line 3: not a JSON object"):
        run_of(tmp_path, text, "chat.jsonl")


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_byte_order_mark_and_any_line_end_change_nothing(tmp_path: Path, end: str):
    text = "Step,timing_s/gen,timing_s/update_actor\n1,80,40\n2,82,40\n3,84,40\n".replace("\n", end)
    run = run_of(tmp_path, b"\xef\xbb\xbf" + text.encode(), "job.csv")
    assert [one.rollout for one in run.iterations] == [80.0, 82.0, 84.0]
    assert len(run_of(tmp_path, b"\xef\xbb\xbf" + end.join(VERL).encode() + end.encode()).iterations) == 6


def test_numbers_that_are_none_are_counted_and_their_steps_left_out(tmp_path: Path):
    rows = "".join(f"{step},{value},40\n" for step, value in enumerate(("nan", "inf", "1_000", "-1", "1e1", 20, 30)))
    run = run_of(tmp_path, f"Step,timing_s/gen,timing_s/update_actor\n{rows}", "job.csv")
    assert [one.rollout for one in run.iterations] == [10.0, 20.0, 30.0]
    assert run.skipped == {NOT_A_NUMBER: 4, NO_ROLLOUT: 4}
    half = run_of(tmp_path, lines([*FILE_LOGGER, {"step": 9, "data": {"timing_s/gen": 1.0}}]), "chat.jsonl")
    assert half.skipped == {NO_TRAINING: 1}
    huge = run_of(tmp_path, lines(FILE_LOGGER) + '{"timing_s/gen": 1' + "0" * 400 + "}\n", "chat.jsonl")
    assert huge.skipped == {NOT_A_NUMBER: 1}


DAMAGED = {
    "an unclosed quote": ('Step,timing_s/gen\n1,80\n2,"81\n3,82\n', "line 3: not CSV"),
    "a short row": ("Step,timing_s/gen,loss\n1,80,1\n2,81\n3,82,1\n", "line 3: 2 cells under 3 headings"),
    "extra cells": ("Step,timing_s/gen\n1,80\n2,81,7\n", "line 3: 3 cells under 2 headings"),
    "a repeated heading": ("Step,timing_s/gen,timing_s/gen\n1,80,80\n", "two columns are called 'timing_s/gen'"),
    "other separators": ("Step;timing_s/gen\n1;80\n", "one column, 'Step;timing_s/gen'"),
    "UTF-16": ("Step,timing_s/gen\n1,80\n".encode("utf-16"), "is UTF-16"),
    "a Git LFS pointer": ("version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "is a Git LFS pointer"),
    "no timings": ("Step,loss\n1,0.5\n", "has no timings"),
    "nothing": ("", "has no timings"),
}


@pytest.mark.parametrize(("text", "message"), DAMAGED.values(), ids=DAMAGED)
def test_damage_is_named_with_its_place(tmp_path: Path, text: str | bytes, message: str):
    with pytest.raises(UsageError, match=message):
        run_of(tmp_path, text, "job.csv")


def test_a_csv_that_is_still_being_written_loses_its_last_row_only(tmp_path: Path):
    run = run_of(tmp_path, "Step,timing_s/gen,timing_s/update_actor\n1,80,40\n2,82,40\n3,84,40\n4,8", "job.csv")
    assert len(run.iterations) == 3 and run.skipped == {TORN: 1}


def wandb_export(metric: str, runs: dict[str, list[float | None]]) -> str:
    sheet = io.StringIO()
    out = csv.writer(sheet, quoting=csv.QUOTE_ALL)
    columns = [f"{run} - {metric}{end}" for run in runs for end in ("", "__MIN", "__MAX")]
    out.writerow(["Step", *columns])
    for step, values in enumerate(zip(*runs.values(), strict=True)):
        out.writerow([step, *("" if value is None else value for value in values for _ in range(3))])
    return sheet.getvalue()


def test_wandb_exports_of_one_metric_each_are_joined_by_run(tmp_path: Path):
    gen = written(
        tmp_path, wandb_export("timing_s/gen", {"GRPO run A": [90, 91, 92], "b - 2": [10, None, 12]}), "1.csv"
    )
    update = written(
        tmp_path, wandb_export("timing_s/update_actor", {"GRPO run A": [40, 41, 42], "b - 2": [5, 5, 5]}), "2.csv"
    )
    with pytest.raises(UsageError, match="2 iterations of b-2"):
        read_runs([gen, update], 0)
    more = written(tmp_path, wandb_export("timing_s/gen", {"b - 2": [10, 11, 12]}), "3.csv")
    first, second = read_runs([gen, update, more], 0)
    assert (first.name, second.name) == ("grpo-run-a", "b-2")
    assert first.iterations[1] == Iteration(rollout=91.0, training=41.0, sync=0.0, other=0.0)
    with pytest.raises(UsageError, match=r"holds 2 runs \(b-2, grpo-run-a\)|holds 2 runs"):
        read_runs([LogSource(gen.path, "mine")])


TRL_STEP = {
    "step_time": 100.0,
    "profiling/Time taken: UnslothGRPOTrainer.vLLM.generate": 60.0,
    "profiling/Time taken: UnslothGRPOTrainer._calculate_rewards": 4.0,
    "profiling/Time taken: UnslothGRPOTrainer.sync_weights": 1.0,
    "profiling/Time taken: UnslothGRPOTrainer._prepare_inputs": 66.0,
}


def test_trl_training_is_what_is_left_of_the_step(tmp_path: Path):
    state = {"global_step": 3, "log_history": [{"step": n, "loss": 0.1, **TRL_STEP} for n in range(3)]}
    folder = tmp_path / "grpo-qwen"
    folder.mkdir()
    run = run_of(folder, json.dumps(state, indent=2), "trainer_state.json")
    assert run.framework == "TRL" and run.name == "grpo-qwen"
    assert run.iterations[0] == Iteration(rollout=60.0, training=35.0, sync=1.0, other=4.0)
    console = "".join(f"{ {key: str(value) for key, value in TRL_STEP.items()} }\n" for _ in range(4))
    assert run_of(tmp_path, console).iterations[0] == Iteration(60.0, 35.0, 1.0, 4.0)


def test_trl_keys_in_rows_of_their_own_are_put_together_as_means(tmp_path: Path):
    generate, rewards = (
        "profiling/Time taken: GRPOTrainer.vLLM.generate",
        "profiling/Time taken: GRPOTrainer._calculate_rewards",
    )
    rows = ["_step," + generate + "," + rewards + ",train/step_time"]
    for step, (rollout, total) in enumerate(((50, 110), (60, 120), (70, 130))):
        rows += [f"{3 * step},{rollout},,", f"{3 * step + 1},,5,", f"{3 * step + 2},,,{total}"]
    run = run_of(tmp_path, "\n".join(rows) + "\n", "history-export.csv")
    assert run.apart
    assert run.iterations == tuple(Iteration(rollout, 55.0, 0.0, 5.0) for rollout in (50.0, 60.0, 70.0))


def test_a_trainer_state_without_rollout_times_says_what_to_log(tmp_path: Path):
    state = json.dumps({"log_history": [{"step": 1, "step_time": 10.0}]})
    with pytest.raises(UsageError, match=r"no rollout times .* TRL: .*Time taken: GRPOTrainer\.vLLM\.generate"):
        run_of(tmp_path, state, "trainer_state.json")
    with pytest.raises(UsageError, match="has no log_history"):
        run_of(tmp_path, '{\n "a": 1}', "trainer_state.json")


def test_openrlhf_prints_a_dictionary_a_step(tmp_path: Path):
    text = "".join(
        f"2026-01-05 INFO ✨ Global step {n}: {{'policy_loss': tensor(0.1), 'timing/make_experience': 12.5, "
        f"'timing/ppo_train': 40.25, 'timing/broadcast': 3.5, 'timing/generation': 60, 'timing/step_total': 116.25}}\n"
        for n in range(1, 4)
    )
    run = run_of(tmp_path, text)
    assert run.framework == "OpenRLHF" and run.iterations[0] == Iteration(60.0, 52.75, 3.5, 0.0)


def test_slime_tells_of_one_step_on_two_lines(tmp_path: Path):
    text = "".join(
        f"(RolloutManager pid=18) [2026-04-15 07:57:53] rollout.py:1193 - perf {n}: {{'perf/rollout_time': 371.5}}\n"
        f"(MegatronTrainRayActor pid=38) [2026-04-15] train_metric_utils.py:44 - perf {n}: {{'perf/sleep_time': 4.0, "
        f"'perf/update_weights_time': 1.5, 'perf/train_wait_time': 380.0, 'perf/ref_log_probs_time': 1.4, "
        f"'perf/actor_train_time': 50.0, 'perf/train_time': 60.0, 'perf/step_time': 440.0}}\n"
        for n in range(3)
    )
    run = run_of(tmp_path, text)
    assert run.framework == "slime" and run.iterations[0] == Iteration(371.5, 60.0, 1.5, 7.0)


def test_roll_prints_json(tmp_path: Path):
    entry = {
        "time/step_generate": 96.5,
        "time/ref_log_probs_values": 14.0,
        "time/old_log_probs": 15.0,
        "time/step_train": 65.0,
        "time/step_model_update": 6.0,
        "time/step_total": 200.0,
    }
    text = "".join(f"[2026-04-15 07:57:53] [INFO] {json.dumps({**entry, 'system/step': n})}\n" for n in range(3))
    run = run_of(tmp_path, text)
    assert run.framework == "ROLL" and run.iterations[0] == Iteration(96.5, 94.0, 6.0, 3.5)


CONFIG = """\
(TaskRunner pid=9) {'actor_rollout_ref': {'actor': {'strategy': 'fsdp'},
(TaskRunner pid=9)                        'model': {'external_lib': None,
(TaskRunner pid=9)                                  'path': 'Qwen/Qwen2.5-14B-Instruct'},
(TaskRunner pid=9)                        'rollout': {'n': 8,
(TaskRunner pid=9)                                    'n_gpus_per_node': 8,
(TaskRunner pid=9)                                    'nnodes': ROLLOUT_NODES}},
(TaskRunner pid=9)  'critic': {'model': {'path': 'other/Other-70B'}},
(TaskRunner pid=9)  'trainer': {'balance_batch': True,
(TaskRunner pid=9)              'n_gpus_per_node': 8,
(TaskRunner pid=9)              'nnodes': 2}}
"""


def test_verls_configuration_says_gpus_and_model(tmp_path: Path):
    text = "".join(f"{line}\n" for line in VERL)
    here = run_of(tmp_path, CONFIG.replace("ROLLOUT_NODES", "0") + text).setup
    assert (here.rollout_gpus, here.training_gpus, here.colocated, here.model) == (16, 16, True, "14")
    apart = run_of(tmp_path, CONFIG.replace("ROLLOUT_NODES", "1") + text).setup
    assert (apart.rollout_gpus, apart.training_gpus, apart.colocated) == (8, 16, False)
    none = run_of(tmp_path, text).setup
    assert (none.rollout_gpus, none.training_gpus, none.colocated, none.model) == (None, None, False, None)


def test_a_colocated_run_has_no_sync_over_a_link_so_one_is_put_in(tmp_path: Path):
    text = "".join(f"{verl_line(n, 80, 40, 'timing_s/update_weights:3.000')}\n" for n in range(3))
    apart = run_of(tmp_path, text).on_two_pools(1.5, 0.5, sync_seconds=9.0)
    assert apart.iterations[0] == Iteration(120.0, 22.5, 3.0, 2.0)
    colocated = run_of(tmp_path, CONFIG.replace("ROLLOUT_NODES", "0") + text).on_two_pools(1.0, 1.0, sync_seconds=9.0)
    assert colocated.iterations[0].sync == 9.0


def test_two_logs_of_one_name_are_called_by_their_folders(tmp_path: Path):
    sources = []
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        sources.append(written(tmp_path / folder, "".join(f"{line}\n" for line in VERL), "train.log"))
    assert [run.name for run in read_runs(sources)] == ["one", "two"]


def test_a_run_whose_phases_overlap_already_is_told(tmp_path: Path):
    text = "".join(
        f"step:{n} - timing_s/generate_async:80.0 - timing_s/update_actor:70.0 - timing_s/step:85.0\n" for n in range(3)
    )
    run = run_of(tmp_path, text)
    assert run.overlapped and run.iterations[0] == Iteration(80.0, 70.0, 0.0, 0.0)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), name=st.sampled_from(("a.log", "a.csv", "a.jsonl", "a.json")))
def test_whatever_a_file_holds_it_is_read_or_refused(tmp_path: Path, data: st.DataObject, name: str):
    sample = data.draw(
        st.sampled_from((lines(FILE_LOGGER), "\n".join(VERL), "Step,timing_s/gen\n1,80\n", json.dumps([TRL_STEP])))
    )
    place = data.draw(st.integers(0, len(sample)))
    junk = data.draw(st.binary(max_size=30))
    content = sample.encode()[:place] + junk + sample.encode()[place + data.draw(st.integers(0, 40)) :]
    try:
        runs = read_runs([written(tmp_path, content, name)])
    except UsageError as error:
        assert "\n" not in str(error)
    else:
        assert all(one.rollout > 0 and one.training > 0 for run in runs for one in run.iterations)
