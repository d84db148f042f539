"""Wall-clock stamps and spelled-out durations of public traces, as seconds."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from weaverl.errors import UsageError

_EPOCH = datetime(1970, 1, 1)
_STAMP = re.compile(r"(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)(?: ?([A-Z]{1,5}))?", re.ASCII)
_ZONE_WORDS = {"UTC": 0, "GMT": 0, "Z": 0, "PST": -8, "PDT": -7}
_CLOCK = re.compile(r"(?:(\d+)-)?(\d{1,3}):(\d\d):(\d\d)|(\d+) days?, (\d{1,2}):(\d\d):(\d\d)", re.ASCII)

NO_ZONE = "stamps have no time zone: differences are plain arithmetic; name the zone (--tz) to count clock changes"


def zone_named(name: str | None) -> tzinfo | None:
    """A time zone of the tz database.

    Raises:
        UsageError: there is none of that name.
    """
    if name is None:
        return None
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise UsageError(f"there is no time zone {name!r}: name one like America/Los_Angeles") from error


class Stamps:
    """Reads stamps like ``2017-10-09 07:01:55`` into seconds since 1970, in one zone or in none.

    In a zone, an hour that a clock change repeats is its first pass (fold=0), and one that it leaves out is read
    with the offset before the change. Without a zone, seconds are plain arithmetic on the wall clock. A zone's
    word behind the stamp is obeyed; ``had_no_zone`` tells whether some stamp had neither.
    """

    def __init__(self, zone: tzinfo | None = None) -> None:
        self.zone = zone
        self.had_no_zone = False

    def seconds(self, text: str, fault: Callable[[str], Exception]) -> float:
        """Seconds since 1970; ``fault`` makes the error for what is no stamp."""
        match = _STAMP.fullmatch(text)
        if match is None:
            raise fault(f"{text!r} is not a stamp like 2017-10-09 07:01:55")
        try:
            wall = datetime.fromisoformat(match[1])
        except ValueError as error:
            raise fault(f"{text!r} is no date: {error}") from error
        zone = self.zone if match[2] is None else self._zone_of(match[2], text, fault)
        if zone is None:
            self.had_no_zone = True
            return (wall - _EPOCH).total_seconds()
        return wall.replace(tzinfo=zone).timestamp()

    def text(self, seconds: float) -> str:
        """Seconds since 1970 as the trace's own clock shows them."""
        if self.zone is None:
            return str(_EPOCH + timedelta(seconds=seconds))
        return str(datetime.fromtimestamp(seconds, self.zone))

    @staticmethod
    def _zone_of(word: str, text: str, fault: Callable[[str], Exception]) -> tzinfo:
        if word not in _ZONE_WORDS:
            raise fault(f"{text!r} is in zone {word}, which is not known: use one of {', '.join(_ZONE_WORDS)}")
        hours = _ZONE_WORDS[word]
        return timezone(timedelta(hours=hours)) if hours else UTC


def clock_seconds(text: str) -> float | None:
    """``1-02:03:04``, ``26:03:04`` or ``1 day, 6:00:00`` in seconds; None if it is none of these."""
    match = _CLOCK.fullmatch(text)
    if match is None:
        return None
    parts = match.groups()
    days, hours, minutes, seconds = (int(part or 0) for part in (parts[:4] if parts[1] is not None else parts[4:]))
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
