from hypothesis import given
from hypothesis import strategies as st

from weaverl.config.cpu_sets import MAX_CPU, cpu_set, format_cpus
from weaverl.config.document import parse_document


@given(st.sets(st.integers(0, MAX_CPU), min_size=1, max_size=50))
def test_formatted_cpus_read_back(cpus):
    document = parse_document(f'cpus: "{format_cpus(cpus)}"', file="f.yaml")
    assert cpu_set(document.entries["cpus"]) == tuple(sorted(cpus))


def test_neighbours_are_written_as_a_range():
    assert format_cpus({0, 1, 2, 5, 7, 8}) == "0-2,5,7-8"
    assert format_cpus(()) == ""
