"""Every tensor and module reachable from what a user calls the state of a role.

The walk reads ``vars()`` only: it triggers no property, makes no entry in a defaultdict and survives cycles.
"""

import sys
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

_KINDS = (Tensor, nn.Module, torch.optim.Optimizer)
_LEAVES = (str, bytes, bytearray, int, float, complex, type(None))
_SEQUENCES = (list, tuple, set, frozenset, deque)
_OPEN_STDLIB = frozenset({"__main__", "collections", "types", "dataclasses"})
_OPAQUE = (sys.stdlib_module_names | {"numpy"}) - _OPEN_STDLIB
_NO_STATE = ("weaverl.runtime", "weaverl.sync", "weaverl.channel", "torch.distributed.device_mesh")
_UNNAMED = frozenset({"_parameters", "_buffers", "_modules"})


class Found(NamedTuple):
    """An object and the path that led to it."""

    name: str
    value: Any


def walk_state(state: object, name: str) -> list[Found]:
    """All tensors, modules and optimizers in modules, optimizers, containers and plain objects, each object once.

    Objects of the standard library other than containers (threads, loggers, functions, modules) are not entered.
    """
    found: list[Found] = []
    seen: dict[int, object] = {}
    stack: list[tuple[str, object]] = [(name, state)]
    while stack:
        path, value = stack.pop()
        if id(value) in seen:
            continue
        seen[id(value)] = value
        if isinstance(value, _KINDS):
            found.append(Found(path, value))
        stack.extend(reversed([child for child in _children(path, value) if not isinstance(child[1], _LEAVES)]))
    return found


def _children(path: str, value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, Tensor):
        yield from _tensor_children(path, value)
    elif isinstance(value, Mapping):
        yield from _mapping_children(path, value)
    elif isinstance(value, _SEQUENCES):
        yield from ((f"{path}[{index}]", item) for index, item in enumerate(value))
    if not _is_opaque(type(value)):
        yield from _attributes(path, value)


def _tensor_children(path: str, tensor: Tensor) -> Iterator[tuple[str, object]]:
    if tensor.is_leaf and tensor.grad is not None:
        yield f"{path}.grad", tensor.grad
    if tensor._base is not None:
        yield f"{path}._base", tensor._base
    if tensor.layout is torch.sparse_coo:
        yield f"{path}._indices", tensor._indices()
        yield f"{path}._values", tensor._values()
    if is_traceable_wrapper_subclass(tensor):
        inner, _ = tensor.__tensor_flatten__()
        yield from ((f"{path}.{attribute}", getattr(tensor, attribute)) for attribute in inner)


def _mapping_children(path: str, mapping: Mapping[object, object]) -> Iterator[tuple[str, object]]:
    for index, (key, item) in enumerate(mapping.items()):
        if isinstance(key, (str, int)):
            yield f"{path}.{key}", item
        else:
            yield f"{path}[{index}]", item
            yield f"{path}.keys[{index}]", key


def _attributes(path: str, value: object) -> Iterator[tuple[str, object]]:
    for key, item in getattr(value, "__dict__", {}).items():
        yield (path if key in _UNNAMED else f"{path}.{key}"), item
    for cls in type(value).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        for key in (slots,) if isinstance(slots, str) else tuple(slots):
            if key not in ("__dict__", "__weakref__") and hasattr(value, key):
                yield f"{path}.{key}", getattr(value, key)


def _is_opaque(cls: type) -> bool:
    module = cls.__module__ or ""
    return module.partition(".")[0] in _OPAQUE or module.startswith(_NO_STATE)
