from weaverl.simulation.engine import Engine
from weaverl.simulation.link import PrivateLink, SharedLink


def ends(link_of, transfers):
    """When transfers end that begin at a time and take so long alone."""
    engine, seen = Engine(), {}
    link = link_of(engine)
    for name, (begin, alone) in transfers.items():
        engine.at(
            begin, lambda work: link.send(work[1], lambda who: seen.setdefault(who, engine.now), work[0]), (name, alone)
        )
    engine.run()
    return seen


def test_a_private_link_is_shared_with_nobody():
    assert ends(PrivateLink, {"a": (0, 100), "b": (50, 100)}) == {"a": 100, "b": 150}


def test_a_shared_link_gives_each_transfer_an_equal_part_of_the_rate():
    # a alone until 50, half the rate for both until a is through at 150, then b alone with 50 to go.
    assert ends(SharedLink, {"a": (0, 100), "b": (50, 100)}) == {"a": 150, "b": 200}


def test_three_equal_transfers_take_three_times_as_long():
    assert ends(SharedLink, {"a": (10, 100), "b": (10, 100), "c": (10, 100)}) == {"a": 310, "b": 310, "c": 310}


def test_a_link_that_was_idle_starts_afresh():
    assert ends(SharedLink, {"a": (0, 10), "b": (1000, 10)}) == {"a": 10, "b": 1010}
