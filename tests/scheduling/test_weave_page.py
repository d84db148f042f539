"""`docs/weave.md` names every parameter of the scheduler with its default, and no other."""

import re
import subprocess
import sys
from pathlib import Path

import msgspec

from weaverl.scheduling.policies.weave import _ALWAYS, _EXCESS
from weaverl.scheduling.progress import WEIGHT
from weaverl.scheduling.state import Parameters

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "weave.md").read_text()
TABLE = PAGE.partition("| parameter | default |")[2].partition("\n\n")[0]


def shown(default: object) -> str:
    """As the page writes it."""
    if default is None or isinstance(default, str):
        return "`None`" if default is None else f'`"{default}"`'
    if isinstance(default, bool):
        return f"`{default}`"
    return f"{default:,}"


def test_the_table_of_parameters_is_the_codes():
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \|", TABLE, re.MULTILINE)
    assert sorted(rows) == sorted((field.name, shown(field.default)) for field in msgspec.structs.fields(Parameters))


def test_the_page_tells_the_reserve_and_the_weight_of_a_forecast():
    assert f"`s + {_EXCESS:g} (s - 1) + {_ALWAYS:g}`" in PAGE
    assert f"{WEIGHT} iterations count as much as what was foreseen" in PAGE


def test_the_pictures_can_be_drawn_and_tell_what_the_page_says(tmp_path: Path):
    told = subprocess.run(
        [sys.executable, DOCS / "weave" / "draw.py", tmp_path], check=True, capture_output=True, text=True
    ).stdout
    for picture in (DOCS / "weave").glob("*.svg"):
        assert (tmp_path / picture.name).stat().st_size
    ends, left_over = re.search(r"slack at the end \(([\d.]+), ([\d.]+)\)", told).groups()
    assert f"It ends at minute {float(ends):.0f} with {float(left_over):.0f} minutes left over." in PAGE
    for minute in re.search(r"planned \[([^]]+)\]", told)[1].split(", "):
        assert f"At minute {float(minute):.0f} " in PAGE
