"""What the bundle changed in the process: functions that were replaced and numeric switches that were flipped.

Evidence only: it is gathered inside the candidate's process and decides nothing.
"""

import importlib
from typing import Any

_CALLABLES = (
    "torch.cuda.Event.elapsed_time",
    "torch.cuda.Event.record",
    "torch.cuda.synchronize",
    "torch.Tensor.copy_",
    "torch.Tensor.float",
    "torch.Tensor.normal_",
    "torch.allclose",
    "torch.equal",
    "torch.isnan",
    "torch.isfinite",
    "torch.manual_seed",
    "torch.empty",
    "torch.randn",
    "torch.nn.Module.__call__",
    "torch.nn.Module.load_state_dict",
    "torch.nn.init.normal_",
    "time.perf_counter",
    "time.perf_counter_ns",
    "time.monotonic",
    "time.time",
    "time.sleep",
    "statistics.median",
    "json.dumps",
    "json.loads",
    "os._exit",
    "gc.collect",
)
_FLAGS = (
    "torch.backends.cuda.matmul.allow_tf32",
    "torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction",
    "torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction",
    "torch.backends.cudnn.allow_tf32",
    "torch.backends.cudnn.benchmark",
    "torch.backends.cudnn.deterministic",
)


def take_identity() -> dict[str, str]:
    """Return what each watched name is bound to now, and each switch's value."""
    import torch

    found = {name: _describe(_resolve(name)) for name in _CALLABLES}
    found |= {name: repr(_resolve(name)) for name in _FLAGS}
    found["torch.get_default_dtype()"] = str(torch.get_default_dtype())
    found["torch.are_deterministic_algorithms_enabled()"] = str(torch.are_deterministic_algorithms_enabled())
    found["torch.get_float32_matmul_precision()"] = torch.get_float32_matmul_precision()
    found["torch.initial_seed()"] = str(torch.initial_seed())
    return found


def compare_identity(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """Return the names that changed, with both values, each in at most 200 characters."""
    return [f"{name}: {before[name]} -> {after.get(name)}"[:200] for name in before if before[name] != after.get(name)]


def _resolve(name: str) -> Any:
    parts = name.split(".")
    value: Any = importlib.import_module(parts[0])
    for part in parts[1:]:
        value = getattr(value, part, None)
    return value


def _describe(value: Any) -> str:
    code = getattr(value, "__code__", None)
    place = f"{code.co_filename.rpartition('/')[2]}:{code.co_firstlineno}" if code is not None else "native"
    return f"{type(value).__name__} {getattr(value, '__qualname__', '?')} {place} {id(value):x}"
