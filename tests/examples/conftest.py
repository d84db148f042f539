"""Lets the tests import the examples' plain modules as the example scripts do, as siblings."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "grpo"))
