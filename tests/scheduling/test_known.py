"""Nothing that may happen or be decided is without a fold."""

from typing import get_args

from builders import cluster

from weaverl.domain.commands import AnyCommand
from weaverl.domain.events import AnyEvent
from weaverl.scheduling.scheduler import Scheduler


def test_every_event_and_every_command_has_its_fold():
    known = Scheduler(cluster())._known
    assert set(known._observers) == set(get_args(AnyEvent))
    assert set(known._appliers) == set(get_args(AnyCommand))
