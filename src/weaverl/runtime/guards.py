"""Refuses the use of modules and optimizers whose state is away: their storages are empty, a read ends the process."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from weaverl.errors import PhaseError
from weaverl.runtime.tensors import Found


def guard_use(found: Iterable[Found], is_resident: Callable[[], bool]) -> list[RemovableHandle]:
    """Make every module's call and every optimizer's step raise PhaseError unless state is resident."""
    handles = []
    for name, value in found:
        refuse = _refusal(name, is_resident)
        if isinstance(value, nn.Module) and not isinstance(value, torch.jit.ScriptModule):
            handles.append(value.register_forward_pre_hook(refuse, prepend=True))
        elif isinstance(value, torch.optim.Optimizer):
            handles.append(value.register_step_pre_hook(refuse))
    return handles


def _refusal(name: str, is_resident: Callable[[], bool]) -> Callable[..., None]:
    def refuse(*_: Any) -> None:
        if not is_resident():
            raise PhaseError(f"{name} was used while its state is away in host memory: use it inside a phase")

    return refuse
