"""State as a tree of tensors and plain values for a checkpoint, and back into living objects, in place.

``load_state_dict`` of optimizers is not used: it casts moments to the dtype of their parameters.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from weaverl.errors import CheckpointError
from weaverl.sync.packing import assign

View = Callable[[Tensor], Tensor]
_PLAIN = (str, bytes, bool, int, float, type(None))


def capture(state: Mapping[str, object], view: View) -> dict[str, Any]:
    """Every value by name, its kind beside it; ``view`` says where a tensor's bytes are."""
    return {name: _capture_value(name, value, view) for name, value in state.items()}


def _capture_value(name: str, value: object, view: View) -> dict[str, Any]:
    if isinstance(value, nn.Module):
        return {"module": _tree(name, _module_tensors(name, value), view)}
    if isinstance(value, Optimizer):
        return {"optimizer": _tree(name, value.state_dict(), view), "at_parameter": _places(value)}
    if isinstance(value, Tensor):
        return {"tensor": _tree(name, value, view)}
    if isinstance(value, torch.Generator):
        return {"generator": value.get_state()}
    state_dict = getattr(value, "state_dict", None)
    if callable(state_dict):
        return {"state_dict": _tree(name, state_dict(), view)}
    try:
        return {"json": msgspec.json.encode(value)}
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        raise CheckpointError(f"{name} ({type(value).__name__}) cannot be saved: {error}") from error


def _module_tensors(name: str, module: nn.Module) -> dict[str, Tensor]:
    values = module.state_dict(keep_vars=True)
    for key, value in values.items():
        if not isinstance(value, Tensor):
            raise CheckpointError(f"{name}.{key} is a {type(value).__name__}: extra state of modules is not saved")
    return dict(values)


def _places(optimizer: Optimizer) -> list[dict[str, bool]]:
    # Which tensors of the state are on their parameter's device; others (a step counter) are on the host.
    return [
        {key: value.device == parameter.device for key, value in entry.items() if isinstance(value, Tensor)}
        for parameter, entry in _entries(optimizer)
    ]


def _entries(optimizer: Optimizer) -> Iterator[tuple[Tensor, dict[str, Any]]]:
    # .get makes no entry in the defaultdict for a parameter that was never stepped.
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            yield parameter, optimizer.state.get(parameter, {})


def _tree(path: str, value: Any, view: View) -> Any:
    if isinstance(value, Tensor):
        return view(value).detach()
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, Mapping):
        items = {key: _tree(f"{path}.{key}", item, view) for key, item in value.items()}
        if isinstance(value, Counter):
            return Counter(items)
        return OrderedDict(items) if isinstance(value, OrderedDict) else items
    if isinstance(value, list | tuple):
        values = [_tree(f"{path}[{index}]", item, view) for index, item in enumerate(value)]
        return values if isinstance(value, list) else tuple(values)
    raise CheckpointError(f"{path} is a {type(value).__name__}: only tensors and plain values are saved")


def restore_values(captured: Mapping[str, Any], state: Mapping[str, object]) -> None:
    """Write captured values into living objects. CheckpointError, before any is changed, if they do not agree."""
    plain = {name for name, item in captured.items() if "json" in item}
    absent, unknown = captured.keys() - plain - state.keys(), state.keys() - captured.keys()
    if absent or unknown:
        raise CheckpointError(
            f"checkpoint and state do not agree: only in the checkpoint {sorted(absent)}, only here {sorted(unknown)}"
        )
    living = {name: value for name, value in state.items() if name not in plain}
    for name, value in living.items():
        _check_value(name, captured[name], value)
    with torch.no_grad():
        for name, value in living.items():
            _restore_value(captured[name], value)


def _check_value(name: str, item: Mapping[str, Any], value: object) -> None:
    if "module" in item and isinstance(value, nn.Module):
        _check_tensors(name, item["module"], _module_tensors(name, value))
    elif "optimizer" in item and isinstance(value, Optimizer):
        _check_optimizer(name, item["optimizer"], value)
    elif "tensor" in item and isinstance(value, Tensor):
        _check_tensors(name, {"": item["tensor"]}, {"": value})
    elif not (
        ("generator" in item and isinstance(value, torch.Generator))
        or ("state_dict" in item and hasattr(value, "load_state_dict"))
    ):
        raise CheckpointError(f"{name} was saved as {next(iter(item))} and is a {type(value).__name__} here")


def _check_tensors(name: str, saved: Mapping[str, Tensor], living: Mapping[str, Tensor]) -> None:
    if saved.keys() != living.keys():
        missing, unexpected = sorted(living.keys() - saved.keys()), sorted(saved.keys() - living.keys())
        raise CheckpointError(f"{name}: the checkpoint misses {missing} and has {unexpected}, unknown here")
    for key, tensor in living.items():
        there = saved[key]
        if (there.shape, there.dtype) != (tensor.shape, tensor.dtype):
            raise CheckpointError(
                f"{name}.{key} was saved as {there.dtype} {list(there.shape)} and is {tensor.dtype} "
                f"{list(tensor.shape)} here; nothing is cast"
            )


def _check_optimizer(name: str, saved: Mapping[str, Any], optimizer: Optimizer) -> None:
    counts = [len(group["params"]) for group in saved["param_groups"]]
    here = [len(group["params"]) for group in optimizer.param_groups]
    if counts != here:
        raise CheckpointError(f"{name} was saved with {counts} parameters by group and has {here} here")


def _restore_value(item: Mapping[str, Any], value: Any) -> None:
    if "module" in item:
        for key, tensor in value.state_dict(keep_vars=True).items():
            assign(tensor, item["module"][key])
    elif "optimizer" in item:
        _restore_optimizer(item["optimizer"], item["at_parameter"], value)
    elif "tensor" in item:
        assign(value, item["tensor"])
    elif "generator" in item:
        value.set_state(item["generator"])
    else:
        value.load_state_dict(item["state_dict"])


def _restore_optimizer(saved: Mapping[str, Any], places: list[dict[str, bool]], optimizer: Optimizer) -> None:
    for group, values in zip(optimizer.param_groups, saved["param_groups"], strict=True):
        for key, value in values.items():
            if key != "params":
                group[key] = _fit(group.get(key), value, torch.device("cpu"))
    for index, (parameter, _) in enumerate(list(_entries(optimizer))):
        values = saved["state"].get(index)
        if values is None:
            optimizer.state.pop(parameter, None)
            continue
        entry = optimizer.state[parameter]
        for key in entry.keys() - values.keys():
            del entry[key]
        for key, value in values.items():
            device = parameter.device if places[index].get(key, True) else torch.device("cpu")
            entry[key] = _fit(entry.get(key), value, device)


def _fit(living: Any, saved: Any, device: torch.device) -> Any:
    """The saved value, in the living tensor if that has its form, else as a new tensor of the saved dtype."""
    if not isinstance(saved, Tensor):
        return saved
    if isinstance(living, Tensor) and (living.shape, living.dtype, living.stride()) == (
        saved.shape,
        saved.dtype,
        saved.stride(),
    ):
        living.copy_(saved)
        return living
    return saved.to(device, copy=True)
