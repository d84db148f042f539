import itertools

import pytest

from weaverl.reports.palette import DARK, LIGHT, contrast, text_on

# Machado, Oliveira and Fernandes (2009), severity 1, on linear RGB.
BLINDNESS = {
    "protan": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deutan": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
}


def seen(colour, rows):
    linear = [(int(colour[i : i + 2], 16) / 255) ** 2.2 for i in (1, 3, 5)]
    return [max(0.0, sum(a * b for a, b in zip(row, linear, strict=True))) ** (1 / 2.2) for row in rows]


def test_contrast_of_black_and_white():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert text_on("#ffffff") == "#10151c"
    assert text_on("#0a65a8") == "#ffffff"


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_text_reads_on_everything_it_lies_on(theme):
    for ground in (theme.page, theme.card):
        for ink in (theme.ink, theme.muted, theme.bad):
            assert contrast(ink, ground) >= 4.5
    for colour in theme.jobs:
        assert contrast(text_on(colour), colour) >= 4.5


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_bars_stand_out_from_their_lane(theme):
    for colour in theme.jobs:
        assert contrast(colour, theme.lane) >= 2.8


@pytest.mark.parametrize("theme", [LIGHT, DARK])
@pytest.mark.parametrize("blindness", BLINDNESS)
def test_the_first_four_jobs_can_be_told_apart_by_colour_blind_readers(theme, blindness):
    colours = [seen(colour, BLINDNESS[blindness]) for colour in theme.jobs[:4]]
    for one, other in itertools.combinations(colours, 2):
        assert sum((a - b) ** 2 for a, b in zip(one, other, strict=True)) ** 0.5 > 0.15
