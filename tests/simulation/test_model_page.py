"""`docs/model.md` says what the code does: every key and every efficiency, and no other."""

import re
from pathlib import Path

from weaverl.domain.cluster import Slot
from weaverl.domain.groups import Pin
from weaverl.scheduling.admission import predicted_slowdowns
from weaverl.scheduling.round_model import Durations, Member
from weaverl.simulation.estimate_inputs import Efficiencies
from weaverl.simulation.timing_keys import FRAMEWORKS, plain_key

PAGE = (Path(__file__).parents[2] / "docs" / "model.md").read_text()


def cells(row: str) -> list[set[str]]:
    """The keys in each cell of a row of the table, as the code has them."""
    return [
        {
            plain_key(key if "/" in key or key == "step_time" else f"profiling/Time taken: {key}")
            for key in re.findall(r"`([^`]+)`", cell)
        }
        for cell in row.split("|")[2:-1]
    ]


def test_the_table_of_timing_keys_is_the_codes():
    for framework in FRAMEWORKS:
        (row,) = re.findall(rf"^\| {framework.name} \|.*$", PAGE, re.MULTILINE)
        rollout, training, sync, other, total = cells(row)
        assert rollout == {key for keys in framework.rollout for key in keys}
        if framework.training:
            assert training == {key for keys in framework.training for key in keys}
        assert (sync, other, total) == (set(framework.sync), set(framework.other), set(framework.total))


def test_the_table_of_efficiencies_is_the_codes():
    rows = dict(re.findall(r"^\| `(\w+)` \| ([0-9.e-]+) \|", PAGE, re.MULTILINE))
    assert {name: float(value) for name, value in rows.items()} == {
        name: getattr(Efficiencies(), name) for name in Efficiencies.__struct_fields__
    }


def test_the_example_of_a_slowdown_past_its_prediction():
    pin = Pin((Slot("r", 0),), (Slot("t", 0),))
    planned, true = (
        predicted_slowdowns([Member(name, pin, Durations(rollout, 10)) for name in ("a", "b")]) for rollout in (10, 5)
    )
    assert planned == {"a": 1.0, "b": 1.0}
    assert round(true["a"], 2) == 1.33 and "20/15 = 1.33x" in PAGE
