"""The public Philly trace, read once for all tests."""

import pytest

from shared_data import shared_file
from weaverl.simulation.traces.read import read_arrivals
from weaverl.simulation.traces.records import Arrivals


@pytest.fixture(scope="session")
def philly_file() -> Arrivals:
    return read_arrivals(shared_file("data/philly.csv.gz"))
