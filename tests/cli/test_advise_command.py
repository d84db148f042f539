"""`weaverl advise` from the logs on disk to the tables, the JSON and the picture."""

import json
from pathlib import Path

import pytest

from weaverl.cli.advise import log_argument
from weaverl.cli.main import main
from weaverl.errors import UsageError


def log(folder: Path, name: str, rollout: float, update: float, steps: int = 12) -> str:
    path = folder / name
    path.write_text(
        "".join(
            f"step:{n} - timing_s/gen:{rollout:.3f} - timing_s/update_actor:{update:.3f} - "
            f"timing_s/update_weights:2.000 - timing_s/step:{rollout + update + 3:.3f}\n"
            for n in range(steps)
        )
    )
    return str(path)


def printed(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    with pytest.raises(SystemExit) as exit_:
        main(["advise", *arguments])
    assert exit_.value.code == code
    streams = capsys.readouterr()
    return streams.out if code == 0 else streams.err


def test_two_jobs_that_fill_each_others_bubbles(tmp_path, capsys):
    logs = log(tmp_path, "math.log", 80, 60), log(tmp_path, "code.log", 70, 70)
    out = printed(capsys, *logs, "--gpus", "8,8", "--model", "7")
    assert "Weaving saves 4" in out and "$57.04 an hour on 2 nodes instead of $114.08 on 4" in out
    figures = json.loads(printed(capsys, *logs, "--gpus", "8,8", "--json", "-"))
    assert figures["pays"] and figures["nodes_after"] == 2
    assert figures["runs"][0]["profile"]["training_seconds"] == 60 and figures["runs"][0]["skipped"] == {"warm-up": 2}
    assert {job["name"]: 1.0 <= job["slowdown"] < 1.2 for job in figures["jobs"]} == {"math": True, "code": True}


def test_jobs_that_get_in_each_others_way(tmp_path, capsys):
    logs = log(tmp_path, "a.log", 200, 200), log(tmp_path, "b.log", 20, 20)
    out = printed(capsys, *logs, "--gpus", "8,8", "--slo", "1.2")
    assert "Weaving does not pay here: no two of these jobs can share nodes within their SLOs" in out
    assert "a stays alone: with b - would slow" in out and "its SLO is 1.20x; an SLO of" in out


def test_a_cluster_file_gives_prices_and_sizes(tmp_path, capsys):
    cluster = Path(__file__).parents[2] / "examples" / "clusters" / "two-nodes.yaml"
    prices = tmp_path / "cluster.yaml"
    prices.write_text(cluster.read_text().replace("usd_per_gpu_hour: 5.28", "usd_per_gpu_hour: 2"))
    logs = log(tmp_path, "math.log", 80, 60), log(tmp_path, "code.log", 70, 70)
    figures = json.loads(printed(capsys, *logs, "--gpus", "8,8", "--cluster", str(prices), "--json", "-"))
    assert figures["usd_per_hour_after"] == pytest.approx(8 * (1.85 + 2))


def test_the_picture_has_both_jobs(tmp_path, capsys):
    picture = tmp_path / "rounds.svg"
    logs = log(tmp_path, "math.log", 80, 60), log(tmp_path, "code.log", 70, 70)
    printed(capsys, *logs, "--gpus", "8,8", "--gantt", str(picture))
    assert (
        picture.read_text().startswith("<svg") and ">math<" in picture.read_text() and ">code<" in picture.read_text()
    )


def test_a_log_may_be_named_and_described(tmp_path):
    plain = log_argument("lr=1e-5/train.log:rollout=8,training=16,model=7,slo=1.3")
    assert plain.path == Path("lr=1e-5/train.log") or plain.name == "lr"
    there = tmp_path / "run=3:a.log"
    there.write_text("")
    assert log_argument(str(there)).path == there
    full = log_argument("math-a=logs/a.log:rollout=8,training=16,model=Qwen2.5-7B,slo=1.3")
    assert (full.name, full.path, full.rollout_gpus, full.training_gpus) == ("math-a", Path("logs/a.log"), 8, 16)
    assert (full.model, full.slo) == ("Qwen2.5-7B", 1.3)
    for wrong in ("a.log:gpu=8", "a.log:rollout=0", "a.log:rollout=x", "a.log:slo=0.5", "a.log:slo=nan"):
        with pytest.raises(UsageError, match=r"a\.log"):
            log_argument(wrong)


BAD = {
    "no such file": (("nowhere.log",), "nowhere.log is not a file"),
    "gpus of one pool": (("LOG", "--gpus", "8"), "--gpus 8: give two numbers"),
    "no gpus": (("LOG",), "does not say how many GPUs a has: add :rollout=8,training=8"),
    "a log twice": (("LOG", "LOG"), "is given twice"),
    "an unknown model": (("LOG", "--gpus", "8,8", "--model", "gpt"), "'gpt'"),
}


@pytest.mark.parametrize(("arguments", "value"), BAD.values(), ids=BAD)
def test_what_cannot_be_is_one_line(tmp_path, capsys, arguments: tuple[str, ...], value: str):
    path = log(tmp_path, "a.log", 80, 60)
    line = printed(capsys, *(path if argument == "LOG" else argument for argument in arguments), code=2)
    assert line.count("\n") == 1 and value in line
