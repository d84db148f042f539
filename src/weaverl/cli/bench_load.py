"""Keeps one core busy for as long as its starter lives: other people's load, for measurements beside it."""

import os
import sys

_TURNS_BETWEEN_LOOKS = 1_000_000


def burn(starter: int) -> None:
    """Compute until the process ``starter`` is no longer our parent."""
    while os.getppid() == starter:
        for _ in range(_TURNS_BETWEEN_LOOKS):
            pass


if __name__ == "__main__":
    burn(int(sys.argv[1]))
