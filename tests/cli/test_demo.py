"""The demo on a small run: real processes, real Valkey, real torch; judged by the auditor, which shares no code."""

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from auditor import audit, disagreements
from weaverl.reports.recorded import compare_timeline

pytestmark = pytest.mark.slow  # five runs of the example, each with its own start of torch: 50 s

ITERATIONS = 4


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict]:
    out = tmp_path_factory.mktemp("demo")
    command = [sys.executable, "-m", "weaverl.cli.main", "demo", "--tiny", "--iterations", str(ITERATIONS)]
    ran = subprocess.run([*command, "--out", str(out), "--json", "-"], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return out, json.loads(ran.stdout)


def results(out: Path, run: str) -> list[dict]:
    folders = sorted((out / run).iterdir())
    records = [json.loads((folder / "result.json").read_text()) for folder in folders]
    return [{key: record[key] for key in ("rewards", "losses", "weights_sha256")} for record in records]


def test_losses_rewards_and_weights_are_bit_for_bit_those_of_the_plain_script(demo):
    out, figures = demo
    assert results(out, "woven") == results(out, "plain") == results(out, "solo")
    assert len(results(out, "plain")) == 2 and results(out, "plain")[0] != results(out, "plain")[1]
    assert figures["bit_equal"] is True


def intervals(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()[1:]]


def test_state_moved_with_every_hand_over_and_no_more(demo):
    out, figures = demo
    woven = intervals(out / "woven.jsonl")
    expected = 0
    for pool in ("rollout", "training"):
        held = [one for one in woven if one["phase"] == pool]
        held.sort(key=lambda one: one["granted_at"])
        changes = [(a, b) for a, b in pairwise(held) if a["job"] != b["job"]]
        assert changes, f"no hand-over on the {pool} node"
        assert all(a["saved_bytes"] > 0 for a, _ in changes), "a hand-over without moving the state off"
        expected += sum(a["saved_bytes"] for a, _ in changes)
    assert figures["moved_gib"] * 2**30 == pytest.approx(expected)
    assert expected > 0


def test_every_iteration_synced_one_bf16_model(demo):
    out, figures = demo
    sizes = {one["moved_bytes"] for one in intervals(out / "woven.jsonl") if one["phase"] == "sync"}
    (bf16_model,) = sizes
    assert bf16_model == 38_336
    assert figures["sync_mib"] * 2**20 == pytest.approx(2 * ITERATIONS * bf16_model)


def test_the_auditor_finds_nothing_and_the_same_figures(demo):
    out, figures = demo
    solo = {job["name"]: out / f"solo-{job['name']}.jsonl" for job in figures["jobs"]}
    result = audit(out / "woven.jsonl", solo=solo)
    assert result.findings == ()
    reported = {
        "seconds": figures["seconds_woven"],
        "usd": figures["usd_woven"],
        "bubble_rollout": figures["bubble_rollout_woven"],
        "bubble_training": figures["bubble_training_woven"],
        **{f"slowdown:{job['name']}": job["slowdown"] for job in figures["jobs"]},
    }
    assert disagreements(result.figures, reported) == []


def test_the_second_job_rolls_out_while_the_first_trains(demo):
    out, _ = demo
    woven = intervals(out / "woven.jsonl")
    trained = [one for one in woven if one["phase"] == "training"]
    rolled = [one for one in woven if one["phase"] == "rollout"]
    overlaps = [
        (t, r)
        for t in trained
        for r in rolled
        if t["job"] != r["job"] and t["started_at"] < r["ended_at"] and r["started_at"] < t["ended_at"]
    ]
    assert overlaps


def test_the_prediction_was_written_before_the_woven_run_and_is_the_reported_one(demo):
    out, figures = demo
    prediction = out / "prediction.txt"
    assert f"{figures['predicted_ratio']:.4f}" in prediction.read_text()
    woven_results = list((out / "woven").glob("*/result.json"))
    assert prediction.stat().st_mtime < min(path.stat().st_mtime for path in woven_results)


def test_the_report_is_one_page_without_the_network(demo):
    out, _ = demo
    page = (out / "report.html").read_text()
    assert page.count("<svg") >= 2 and "grpo-a" in page
    assert "http://" not in page.replace("http://www.w3.org", "") and "https://" not in page
    assert (out / "gantt.svg").read_text().startswith("<svg")


def test_the_simulator_fed_with_its_times_grants_in_the_same_order_and_ends_within_five_percent(demo):
    out, _ = demo
    found = compare_timeline(out / "woven.jsonl")
    assert len(found.order) == 2 and all(found.order.values())
    assert abs(found.deviation) < 0.05
