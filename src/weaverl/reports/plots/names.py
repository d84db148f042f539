"""What policies are called in figures, and their colours: the same in all of them."""

from weaverl.reports.palette import LIGHT

_NAMES = {
    "solo": "Solo-D",
    "colocated": "veRL, colocated",
    "gavel": "Gavel+",
    "weave-paper": "WEAVE, as published",
    "weave": "weaverl",
    "optimal": "optimal",
}
_PLACES = {"weave-paper": 0, "solo": 1, "colocated": 2, "gavel": 3, "weave": 7, "optimal": 5}


def policy_name(policy: str) -> str:
    """For people."""
    return _NAMES.get(policy, policy)


def policy_colour(policy: str) -> str:
    """Of its bars and lines."""
    return LIGHT.job(_PLACES.get(policy, 6))
