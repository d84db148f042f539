"""No table is cut at 80 columns, nor when piped: every number is there whole, and no line is longer."""

import io
from pathlib import Path

import msgspec
import pytest

from simulation.small import row, trace
from weaverl.cli import bench, bench_decision
from weaverl.cli.main import main
from weaverl.reports import sheets, simulated, tables
from weaverl.simulation.outcome import ByPool
from weaverl.simulation.simulate import Setup, simulate
from weaverl.simulation.traces.schema import write_jobs

CLUSTER = Path(__file__).parents[2] / "examples" / "clusters" / "two-nodes.yaml"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")


def shown(stream: io.StringIO) -> str:
    text = stream.getvalue()
    assert "…" not in text and "..." not in text, text
    assert max(map(len, text.splitlines())) <= (80 if stream.isatty() else tables.PIPED_WIDTH), text
    return text


@pytest.fixture(params=[Terminal, io.StringIO], ids=["terminal", "piped"])
def stream(request: pytest.FixtureRequest) -> io.StringIO:
    return request.param()


def outcome(policy: str, **more: object):
    jobs = [row(f"a-job-with-a-rather-long-name-{number}", tenant="a-tenant-of-some-length") for number in range(2)]
    found = simulate(trace(*jobs), Setup(policy=policy, seed=None, timings=False))
    return msgspec.structs.replace(found, **more)


def test_compare_has_a_heading_a_trace_and_every_figure(stream):
    large = {
        "usd": 123_456_789.0,
        "usd_per_hour": 12_345.0,
        "hours": 12_345.0,
        "peak_gpus": ByPool(10_000, 20_000),
        "bubbles": ByPool(0.81, 0.64),
    }
    names = ("production-200-increasing-s0, drift 1.5", "small")
    runs = [outcome(policy, trace=name, **large) for name in names for policy in ("weave-paper", "colocated")]
    ratios = [{"solo": 1.8354, "colocated": 11.2345}] * 4
    simulated.print_comparison(runs, ratios, tables.console_for(stream))
    text = shown(stream)
    assert text.count("drift 1.5") == 1 and text.count("weave-paper") == 4
    for figure in ("123,456,789", "12,345", "10000 + 20000", "81% + 64%", "1.84x", "11.23x"):
        assert text.count(figure) >= 4, figure


def test_a_pool_without_gpus_has_no_bubble(stream):
    found = outcome("colocated")
    assert found.peak_gpus.rollout == 0
    console = tables.console_for(stream)
    simulated.print_outcome(found, console)
    simulated.print_comparison([found], [{"solo": 1.0, "colocated": 1.0}], console)
    text = shown(stream)
    assert "- rollout, " in text and " - + " in text and " 0% +" not in text


def test_simulate_shows_its_tenants(stream):
    simulated.print_outcome(outcome("solo"), tables.console_for(stream))
    assert "a-tenant-of-some-length" in shown(stream)


def test_decisions_keep_all_their_times(stream, monkeypatch):
    monkeypatch.setattr("sys.stdout", stream)
    kinds = {
        name: bench_decision.ArrivalFigures(p50_ms=1234.56, p99_ms=2345.67, arrivals=200)
        for name in ("refused_by_memory", "refused_by_promises", "feasible")
    }
    figures = bench_decision.DecisionFigures(
        p50_ms=1234.56,
        p99_ms=2345.67,
        jobs=200_000,
        groups=66_667,
        kinds=kinds,
        admissions_seconds=1234.5,
        policy="weave-paper",
        machine={},
    )
    bench._print_decisions([figures])
    text = shown(stream)
    assert text.count("1234.56") == 4 and "2345.67" in text and " 1234.5 " in text and "200,000" in text


def test_words_are_folded_and_numbers_are_not(stream):
    console = tables.console_for(stream)
    rows = [("w" * 70, "x" * 70, "1,234,567,890")]
    console.print(sheets.sheet(("name", "other", "number"), rows, console, words=("name", "other")))
    text = shown(stream)
    assert text.count("w") == 70 and text.count("x") == 70 and "1,234,567,890" in text


def command(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, *arguments: object) -> str:
    monkeypatch.setattr("sys.stdout", stream)
    with pytest.raises(SystemExit) as exit_:
        main([str(one) for one in arguments])
    assert exit_.value.code == 0
    return shown(stream)


def test_advise(tmp_path, stream, monkeypatch):
    logs = [tmp_path / f"a-reward-model-with-a-long-name-{number}.log" for number in range(2)]
    for path in logs:
        path.write_text(
            "".join(
                f"step:{n} - timing_s/gen:{9000 + n % 2 * 500} - timing_s/update_actor:9123 - "
                f"timing_s/update_weights:20 - timing_s/step:19000\n"
                for n in range(12)
            )
        )
    text = command(monkeypatch, stream, "advise", *logs, "--gpus", "8,8", "--model", "7")
    assert text.count("9250 s ±3%") == 2 and text.count("9123 s") == 2 and text.count("8+8") == 2
    assert "57.04" in text and "114.08" in text and text.count("1.50x") == 2


def test_whatif(tmp_path, stream, monkeypatch):
    for name in ("a-job-with-a-rather-long-name", "b-job-with-a-rather-long-name"):
        (tmp_path / f"{name}.yaml").write_text(
            f"name: {name}\nslo: 1.5\ngpus: {{rollout: 8, training: 8}}\n"
            "host_memory: {rollout: 100Gi, training: 200Gi}\niterations: 100\n"
            "profile: {rollout_max: 90s, rollout_mean: 90s, training: 80s}\n"
            "roles:\n  rollout: {command: [python, rollout.py]}\n  training: {command: [python, training.py]}\n"
        )
    first, second = sorted(tmp_path.iterdir())
    text = command(monkeypatch, stream, "whatif", second, "--cluster", CLUSTER, "--jobs", first)
    assert "pack" in text and text.count("1.50x") == 2 and text.count("0.00") >= 2


def test_estimate(stream, monkeypatch):
    text = command(monkeypatch, stream, "estimate", "Qwen2.5-32B", "--max-tokens", 32768, "--rollout-gpus", 16)
    assert "host memory" in text and "all_reduce_seconds=4e-05" in text


def test_trace_show(tmp_path, stream, monkeypatch):
    write_jobs([row(f"j{number}", tenant=f"tenant-of-some-length-{number}") for number in range(3)], tmp_path / "t.csv")
    assert "3" in command(monkeypatch, stream, "trace", "show", tmp_path / "t.csv")
