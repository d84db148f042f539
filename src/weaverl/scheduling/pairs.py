"""Solo time of a job whose next rollout runs beside training, counted as its phases end.

Alone, rollout k + 1 and training k with its sync and the rest begin together, and the next two when both are over (see
``round_model.chain_us``). So the time goes by in pairs: the first rollout by itself, then each training with the
rollout that runs beside it, at last the last training by itself; a pair takes as long as its longer half.
"""

import msgspec


class Pairs(msgspec.Struct):
    """How far a job has come. Microseconds.

    ``num_closed``: pairs that are over. Of the next one, ``rolled_us`` and ``trained_us``: the half that is over.
    """

    num_closed: int = 0
    rolled_us: int | None = None
    trained_us: int | None = None


def rolled(pairs: Pairs, iteration: int, rollout_us: int) -> int:
    """Fold the end of a rollout; the solo time of the pair, if that is over now. One that is done again counts once."""
    if iteration < pairs.num_closed:
        return 0
    pairs.rolled_us = rollout_us
    return _closed_us(pairs, is_whole=pairs.trained_us is not None or pairs.num_closed == 0)


def trained(pairs: Pairs, iteration: int, trained_us: int, *, is_last: bool) -> int:
    """Fold the end of a training, its sync and the rest; the solo time of the pair, if that is over now."""
    if iteration + 1 < pairs.num_closed:
        return 0
    pairs.trained_us = trained_us
    return _closed_us(pairs, is_whole=pairs.rolled_us is not None or is_last)


def part_us(pairs: Pairs, mean_rollout_us: int, mean_trained_us: int) -> int:
    """Solo time that is certainly gone by of a pair of which one half is over: what the other does not take."""
    if pairs.rolled_us is not None:
        return max(pairs.rolled_us - mean_trained_us, 0)
    return max((pairs.trained_us or 0) - mean_rollout_us, 0)


def cut_off(pairs: Pairs) -> None:
    """Fold the end of an attempt: a rollout that was not trained on is done again."""
    pairs.rolled_us = None


def _closed_us(pairs: Pairs, *, is_whole: bool) -> int:
    if not is_whole:
        return 0
    solo_us = max(pairs.rolled_us or 0, pairs.trained_us or 0)
    pairs.num_closed += 1
    pairs.rolled_us = pairs.trained_us = None
    return solo_us
