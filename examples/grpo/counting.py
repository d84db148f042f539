"""A verifiable task: count on in steps of one from where the prompt stops: ``<s> 7 8 9`` goes on ``0 1 2``."""

from collections.abc import Sequence
from random import Random

NUM_DIGITS = 10
VOCABULARY = (*(str(digit) for digit in range(NUM_DIGITS)), "<s>", "+", "-", "*", "/", "=")
"""A digit's token id is the digit; the signs are there to be unlearnt."""

PROMPT_LENGTH = 4
_START = VOCABULARY.index("<s>")


def draw_prompts(num_prompts: int, seed: int, iteration: int) -> list[list[int]]:
    """Draw an iteration's prompts from ``(seed, iteration)`` alone.

    Returns ``num_prompts`` lists of ``PROMPT_LENGTH`` token ids.
    """
    random = Random(f"prompts/{seed}/{iteration}")
    return [_prompt(random.randrange(NUM_DIGITS)) for _ in range(num_prompts)]


def reward(prompt: Sequence[int], response: Sequence[int]) -> float:
    """Return the fraction of the response's tokens that count one up from the token just before them."""
    before = [prompt[-1], *response[:-1]]
    return sum(map(_counts_up, before, response)) / len(response)


def _prompt(first: int) -> list[int]:
    return [_START, *((first + step) % NUM_DIGITS for step in range(PROMPT_LENGTH - 1))]


def _counts_up(before: int, token: int) -> bool:
    return before < NUM_DIGITS and token == (before + 1) % NUM_DIGITS
