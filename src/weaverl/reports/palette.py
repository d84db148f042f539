"""Colours of reports: one theme for light pages and one for dark ones.

Job colours follow Okabe and Ito's set for colour-blind readers ("Color Universal Design", 2008), darkened on light
pages so that a bar stands out from the lane that it lies on (contrast 3:1 at least, WCAG 2.2, 1.4.11).
"""

import msgspec


class Theme(msgspec.Struct, frozen=True, kw_only=True):
    """Colours as ``#rrggbb``. ``jobs`` repeat when there are more."""

    page: str
    card: str
    ink: str
    muted: str
    rule: str
    lane: str
    lane_rule: str
    bad: str
    jobs: tuple[str, ...]

    def job(self, place: int) -> str:
        """Colour of a job by its place in the run."""
        return self.jobs[place % len(self.jobs)]


LIGHT = Theme(
    page="#f6f7f9",
    card="#ffffff",
    ink="#17202b",
    muted="#566171",
    rule="#d9dee5",
    lane="#e4e9f0",
    lane_rule="#cfd6df",
    bad="#b42318",
    jobs=("#0a65a8", "#d26900", "#00795a", "#b04a86", "#2f86b5", "#8a6d00", "#a8381c", "#5b4bb5"),
)
DARK = Theme(
    page="#10151c",
    card="#19202a",
    ink="#e8edf3",
    muted="#a3afbd",
    rule="#323d4b",
    lane="#273140",
    lane_rule="#3a4757",
    bad="#ff9b8a",
    jobs=("#5ab4ec", "#f2a33a", "#2fc193", "#e08fbe", "#8fd0f5", "#e3d24a", "#f08a6c", "#a99cf2"),
)


def contrast(one: str, other: str) -> float:
    """Contrast ratio of two colours, 1 to 21 (WCAG 2.2)."""
    lighter, darker = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def text_on(colour: str) -> str:
    """Black or white, whichever reads better on a colour."""
    return max(("#ffffff", "#10151c"), key=lambda ink: contrast(ink, colour))


def mix(colour: str, ground: str, share: float) -> str:
    """A colour thinned with the ground that it lies on."""
    return "#" + "".join(
        f"{round(share * over + (1 - share) * under):02x}"
        for over, under in zip(_channels(colour), _channels(ground), strict=True)
    )


def drawing_style(theme: Theme) -> str:
    """Style rules for all drawings in one theme; colours are literal, so that they hold outside of a page."""
    rules = [
        f".ink{{fill:{theme.ink}}}.muted{{fill:{theme.muted}}}.card{{fill:{theme.card}}}",
        f".lane{{fill:{theme.lane};stroke:{theme.lane_rule}}}.grid{{stroke:{theme.rule}}}.mark{{stroke:{theme.muted}}}",
    ]
    for place, colour in enumerate(theme.jobs):
        pale = mix(colour, theme.card, 0.32)
        rules.append(
            f".j{place}{{fill:{colour}}}.p{place}{{fill:{pale}}}.t{place}{{fill:{text_on(colour)}}}"
            f".l{place}{{stroke:{colour}}}.w{place}{{stroke:{pale}}}"
        )
    return "".join(rules)


def num_colours() -> int:
    """How many jobs have a colour of their own."""
    return len(LIGHT.jobs)


def _channels(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def _luminance(colour: str) -> float:
    red, green, blue = (
        channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4
        for channel in (part / 255 for part in _channels(colour))
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
