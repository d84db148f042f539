from weaverl.simulation.engine import ARRIVALS_NEXT, CLUSTER_FIRST, TIMERS_LAST, Engine


def test_time_goes_on_and_ties_keep_priority_then_order():
    engine, seen = Engine(), []
    for time, priority, name in (
        (5, TIMERS_LAST, "timer"),
        (5, ARRIVALS_NEXT, "arrival"),
        (5, CLUSTER_FIRST, "first"),
        (9, CLUSTER_FIRST, "late"),
        (5, CLUSTER_FIRST, "second"),
        (2, TIMERS_LAST, "early"),
    ):
        engine.at(time, lambda what: seen.append((engine.now, what)), name, priority)
    engine.run()
    assert seen == [(2, "early"), (5, "first"), (5, "second"), (5, "arrival"), (5, "timer"), (9, "late")]
    assert len(engine) == 0


def test_what_is_planned_for_now_comes_after_what_was_planned_before():
    engine, seen = Engine(), []

    def first(_):
        seen.append("first")
        engine.at(engine.now, lambda _: seen.append("third"), None)

    engine.at(1, first, None)
    engine.at(1, lambda _: seen.append("second"), None)
    engine.run()
    assert seen == ["first", "second", "third"]


def test_arguments_are_never_compared():
    engine = Engine()
    for _ in range(3):
        engine.at(1, lambda _: None, object())
    engine.run()
