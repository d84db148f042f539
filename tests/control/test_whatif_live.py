"""`weaverl whatif` against a cluster that is up."""

import json
from pathlib import Path

import pytest
from live import Live

from weaverl.cli.main import main

JOB = """\
name: asked-about
slo: 50
placement: local
gpus: {rollout: 1, training: 1}
host_memory: {rollout: 1Mi, training: 1Mi}
profile: {rollout_max: 100ms, rollout_mean: 100ms, training: 100ms}
roles:
  run: {command: "python train.py"}
"""


def test_whatif_asks_the_living_cluster_and_submits_nothing(live: Live, tmp_path: Path, monkeypatch, capsys):
    monkeypatch.setenv("WEAVERL_HOME", str(live.home.directory))
    live.submit("asked-beside", "--iterations", 200, "--seconds", 0.05, iterations=200)
    live.await_phase("asked-beside", "training", 0)
    path = tmp_path / "job.yaml"
    path.write_text(JOB)
    with pytest.raises(SystemExit) as exit_:
        main(["whatif", str(path), "--json", "-"])
    assert exit_.value.code == 0
    answer, beside = json.loads(capsys.readouterr().out), live.job("asked-beside")
    assert beside is not None
    assert (answer["kind"], answer["group"]) == ("pack", beside.group)
    assert {effect["job"] for effect in answer["effects"]} == {"asked-beside", "asked-about"}
    assert answer["added_usd_per_hour"] == 0.0
    assert live.job("asked-about") is None
    live.client.cancel("asked-beside")
    live.await_end("asked-beside")
