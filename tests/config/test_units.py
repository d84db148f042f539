"""Field cases YM-04 and TR-25: units and numbers."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weaverl.config.units import (
    BYTES,
    MAX_BYTES,
    Rounding,
    format_bytes,
    format_seconds,
    parse_bytes,
    parse_number,
    parse_seconds,
)
from weaverl.errors import SpecError


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("24G", 24_000_000_000),
        ("24Gi", 25_769_803_776),
        ("64 GiB", 68_719_476_736),
        ("64GB", 64_000_000_000),
        ("1.5Ki", 1536),
        ("5.0e3B", 5000),
        ("1e1Mi", 10_485_760),
        ("1Ti", 1_099_511_627_776),
    ],
)
def test_a_size_is_the_same_rounded_down_or_up_where_it_is_whole(text, size):
    assert parse_bytes(text, Rounding.DOWN) == size
    assert parse_bytes(text, Rounding.UP) == size


def test_a_fraction_of_a_byte_counts_down_for_limits_and_up_for_demands():
    assert parse_bytes("2.1Gi", Rounding.DOWN) == 2_254_857_830
    assert parse_bytes("2.1Gi", Rounding.UP) == 2_254_857_831
    assert parse_bytes("0.5B", Rounding.UP) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("500m", "unknown unit, got '500m': write it like 64Gi, with one of B, K, KB, Ki"),
        ("64g", "unknown unit, got '64g'"),
        ("64Gb", "unknown unit, got '64Gb'"),
        ("1Gi extra", "not a number with a unit, got '1Gi extra'"),
        ("1.5", "the unit is missing, got '1.5'"),
        ("5.0e3", "the unit is missing, got '5.0e3'"),
        ("-1Gi", "must be above zero, got '-1Gi'"),
        ("0Gi", "must be above zero, got '0Gi'"),
        ("1_000Mi", "not a number with a unit, got '1_000Mi'"),
        ("010Mi", "not a number with a unit, got '010Mi'"),
        ("nan", "not a number with a unit, got 'nan'"),
        (".infGi", "not a number with a unit, got '.infGi'"),
        ("٣Gi", "not a number with a unit, got '٣Gi'"),
        ("Gi", "not a number with a unit, got 'Gi'"),
        ("", "not a number with a unit, got ''"),
        ("1" * 5000 + "Gi", "not a number with a unit, got '1111"),
        ("1e308Gi", "more than 1 EiB, got '1e308Gi': check the unit"),
    ],
)
def test_a_size_that_could_be_misread_is_refused(text, message):
    with pytest.raises(SpecError) as caught:
        parse_bytes(text, Rounding.UP)
    assert str(caught.value).startswith(message)


def test_a_limit_below_one_byte_is_refused():
    with pytest.raises(SpecError, match=r"less than one byte, got '0.5B': check the unit"):
        parse_bytes("0.5B", Rounding.DOWN)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("50ms", 0.05),
        ("2.4s", 2.4),
        ("30min", 1800.0),
        ("48h", 172800.0),
        ("1.5 h", 5400.0),
        ("0s", 0.0),
        ("1us", None),
    ],
)
def test_a_time_is_read_in_seconds(text, seconds):
    if seconds is None:
        with pytest.raises(SpecError, match=r"unknown unit, got '1us': write it like 1\.5s, with one of ms, s, min, h"):
            parse_seconds(text, above_zero=False)
    else:
        assert parse_seconds(text, above_zero=False) == seconds


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("22:10", "not a number with a unit, got '22:10'"),
        ("90", "the unit is missing, got '90'"),
        ("5m", "unknown unit, got '5m'"),
        ("1h30min", "unknown unit, got '1h30min'"),
        ("0s", "must be above zero, got '0s'"),
        ("-0s", "must be above zero, got '-0s'"),
        ("-1s", "must be above zero, got '-1s'"),
        ("infs", "not a number with a unit, got 'infs'"),
        ("nan s", "not a number with a unit, got 'nan s'"),
        ("1e308s", "longer than 1,000,000,000 s, got '1e308s'"),
        ("1e-308s", "shorter than a microsecond, got '1e-308s'"),
    ],
)
def test_a_time_that_no_clock_can_count_is_refused(text, message):
    with pytest.raises(SpecError) as caught:
        parse_seconds(text, above_zero=True)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1e1", Fraction(10)),
        ("5.0e3", Fraction(5000)),
        ("1e-5", Fraction(1, 100000)),
        ("-0", Fraction(0)),
        ("+3", Fraction(3)),
        ("0123", None),
        ("1_000", None),
        ("0x10", None),
        ("nan", None),
        ("inf", None),
        (" 12 ", None),
        ("12\n", None),
        ("1/2", None),
        ("٣", None),
        ("1e1000", None),
        (".5", None),
        ("5.", None),
    ],
)
def test_a_number_is_plain_decimal_digits(text, number):
    assert parse_number(text) == number


@given(st.integers(1, MAX_BYTES), st.sampled_from(Rounding))
def test_a_formatted_size_reads_back(size, rounding):
    assert parse_bytes(format_bytes(size), rounding) == size


@given(st.integers(1, 2**20), st.sampled_from(sorted(BYTES)))
def test_a_size_in_any_unit_reads_back(count, unit):
    size = parse_bytes(f"{count} {unit}", Rounding.UP)
    assert size == count * BYTES[unit] == parse_bytes(format_bytes(size), Rounding.DOWN)


@given(st.one_of(st.just(0.0), st.floats(1e-6, 1e9), st.integers(0, 10**9).map(float)))
def test_a_formatted_time_reads_back(seconds):
    assert parse_seconds(format_seconds(seconds), above_zero=False) == seconds


def test_formats_take_the_largest_exact_unit():
    assert [format_bytes(size) for size in (24 * 2**30, 24 * 10**9, 1025, 1536, 2**40)] == [
        "24Gi",
        "24G",
        "1025B",
        "1536B",
        "1Ti",
    ]
    assert [format_seconds(seconds) for seconds in (172800.0, 1800.0, 90.0, 2.4, 0.0)] == [
        "48h",
        "30min",
        "90s",
        "2.4s",
        "0.0s",
    ]
