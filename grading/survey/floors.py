"""Survey ``floors``: what the least that a kernel can do takes by the deck's method, so that aims can be judged.

In one process and by `grading.timing`, as any solution would be timed: a call that does nothing; a call that launches
an empty kernel from a plain C function, the least that a call which launches anything takes; and for each shape a
kernel that does nothing but read as many bytes as the problem's floor counts, cold, by the fastest of a few launch
plans. Beside them the library's rate of one large dense product of the problem's type.

The floor of a shape is the longer of that read, and of the empty launch plus its operations at the library's rate. Left
out: that writing costs more than reading, steps that wait for each other (hard 02 has 16 to 64), several launches.

It is a yardstick, no law. Short floors are the host's, whose part differs by a microsecond and more from process to
process, so each is the least of three turns and stands beside the most; part of a launch can hide behind a long kernel;
and another kernel may multiply faster than the library. An aim is out of reach only where more than that lies between.
"""

import functools
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import msgspec

from grading.formulas import evaluate
from grading.hardware import load_gpus
from grading.problem import Problem, Shape, load_problem
from grading.survey.bench import Versions, read_versions
from grading.survey.book import Entry
from grading.survey.work import Work
from grading.timing import median_ms, time_calls
from grading.yardstick import mean_value, values_of

_SIZE, _PRODUCTS = 8192, 20
_DENSE_TYPES = {"fp8": "float8_e4m3fn", "bf16": "bfloat16", "fp32": "bfloat16"}
_BLOCKS_PER_PROCESSOR = (1, 2, 4)
_TURNS = 3

_CUDA = r"""
#include <cuda_runtime.h>
#include <stdint.h>

__global__ void do_nothing() {}

__device__ __forceinline__ uint32_t read_16(const uint4* from, uint64_t policy) {
    uint4 x;
    asm volatile("ld.global.nc.L1::no_allocate.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w) : "l"(from), "l"(policy));
    return x.x | x.y | x.z | x.w;
}

// The data is zeros, so nothing is ever written; the compiler cannot know.
__global__ void __launch_bounds__(512) read_all(const uint4* data, size_t count, uint32_t* seen) {
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    size_t at = (size_t)blockIdx.x * blockDim.x + threadIdx.x, step = (size_t)gridDim.x * blockDim.x;
    uint32_t found = 0;
    for (; at + 7 * step < count; at += 8 * step) {
        uint32_t part[8];
#pragma unroll
        for (int i = 0; i < 8; i++) part[i] = read_16(data + at + i * step, policy);
#pragma unroll
        for (int i = 0; i < 8; i++) found |= part[i];
    }
    for (; at < count; at += step) found |= read_16(data + at, policy);
    if (found) *seen = found;
}

void launch(const void* data, size_t count, void* seen, int blocks) {
    if (blocks == 0) do_nothing<<<1, 32>>>();
    else read_all<<<blocks, 512>>>((const uint4*)data, count, (uint32_t*)seen);
}
"""

_CPP = r"""
#include <pybind11/pybind11.h>
#include <stdint.h>

void launch(const void*, size_t, void*, int);

struct Plan { const void* data; size_t count; void* seen; int blocks; };

// A plain C function whose self is the plan: the cheapest way from Python to a launch.
static PyObject* run(PyObject* self, PyObject* const*, Py_ssize_t) {
    const Plan& plan = *static_cast<Plan*>(PyCapsule_GetPointer(self, nullptr));
    launch(plan.data, plan.count, plan.seen, plan.blocks);
    Py_RETURN_NONE;
}

static PyMethodDef method = {"run", (PyCFunction)(void*)run, METH_FASTCALL, nullptr};

static pybind11::object bind(uintptr_t data, size_t count, uintptr_t seen, int blocks) {
    pybind11::capsule plan(new Plan{(const void*)data, count, (void*)seen, blocks},
                           [](void* p) { delete static_cast<Plan*>(p); });
    return pybind11::reinterpret_steal<pybind11::object>(PyCFunction_New(&method, plan.ptr()));
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("bind", &bind); }
"""


class Floor(msgspec.Struct, frozen=True, kw_only=True):
    """One shape: milliseconds of the bare read by the deck's method, of the floor, and the share of the peak there.

    read_ms, read_most_ms  the least and the most of some turns; None = there was one
    """

    shape: dict[str, float]
    read_ms: float
    read_most_ms: float | None = None
    floor_ms: float
    share: float | None = None


class Floors(msgspec.Struct, frozen=True, kw_only=True):
    """One problem: what a call costs, the library's dense rate, the floors, and the score of a kernel on all of them.

    launch_ms, launch_most_ms  the least and the most of some turns; None = there was one
    """

    versions: Versions
    nothing_ms: float
    launch_ms: float
    launch_most_ms: float | None = None
    dense_tflops: float
    shapes: list[Floor]
    ceiling: float | None


def measure_floors(work: Work) -> Iterator[Floors]:
    """Child: measure one problem. Needs a CUDA device and a compiler."""
    import torch

    problem = load_problem(*work.problem.split("/", 1))
    timing, device = problem.timing, work.device
    seen = torch.zeros(4, dtype=torch.uint8, device=device)

    def by_deck(call: Callable[[], object]) -> list[float]:
        turns = (time_calls(call, device, timing.warmup, timing.trials, timing.flush_bytes) for _ in range(_TURNS))
        return sorted(map(median_ms, turns))

    bind = _extension().bind
    nothing, launch = by_deck(lambda: None), by_deck(bind(0, 0, 0, 0))
    rate = dense_tflops(problem.metric.dtype, device)
    processors = torch.cuda.get_device_properties(device).multi_processor_count
    floors = []
    for _, shape in work.chosen_shapes():
        count = -(-int(evaluate(problem.metric.floor_bytes, shape)) // 16)
        data = torch.zeros(count * 16, dtype=torch.uint8, device=device)
        plans = [min(each * processors, -(-count // 512)) for each in _BLOCKS_PER_PROCESSOR]
        read = min(by_deck(bind(data.data_ptr(), count, seen.data_ptr(), blocks)) for blocks in plans)
        floor_ms = floor_of(problem, shape, read[0], launch[0], rate)
        floors.append(Floor(shape=shape, read_ms=read[0], read_most_ms=read[-1], floor_ms=floor_ms))
        del data
    found = Floors(
        versions=read_versions(device),
        nothing_ms=nothing[0],
        launch_ms=launch[0],
        launch_most_ms=launch[-1],
        dense_tflops=rate,
        shapes=floors,
        ceiling=None,
    )
    yield scored(problem, work.gpu, found)


def floor_of(problem: Problem, shape: Shape, read_ms: float, launch_ms: float, dense_tflops: float) -> float:
    """Return a shape's floor in milliseconds: its bytes' read, or an empty launch and its operations."""
    return max(read_ms, launch_ms + evaluate(problem.metric.floor_flops, shape) / (dense_tflops * 1e9))


def scored(problem: Problem, gpu: str, found: Floors) -> Floors:
    """Return the floors with their shares of the peak, and the score of a kernel that stands on all of them."""
    values = values_of(problem, load_gpus()[gpu], [floor.floor_ms for floor in found.shapes])
    if values is None:
        return found
    shapes = [msgspec.structs.replace(f, share=share) for f, share in zip(found.shapes, values, strict=True)]
    return msgspec.structs.replace(found, shapes=shapes, ceiling=mean_value(problem, values))


def dense_tflops(dtype: str, device: str) -> float:
    """Return the rate of the library's largest usual product, in TFLOPS: a median of single calls, nothing flushed."""
    import torch

    kind = getattr(torch, _DENSE_TYPES[dtype])
    one = torch.randn(_SIZE, _SIZE, device=device).clamp(-3, 3).to(kind)
    other = torch.randn(_SIZE, _SIZE, device=device).clamp(-3, 3).to(kind).T
    unit: Any = torch.ones((), device=device)
    product: Callable[[], object] = lambda: one @ other  # noqa: E731
    if dtype == "fp8":
        product = lambda: torch._scaled_mm(  # noqa: E731
            one, other, scale_a=unit, scale_b=unit, out_dtype=torch.bfloat16, use_fast_accum=True
        )
    return 2 * _SIZE**3 / median(time_calls(product, device, 5, _PRODUCTS, 0)) / 1e9


def table(entry: Entry) -> str:
    """Return a problem's floors in words, a line a shape."""
    if entry.result is None:
        return f"{entry.problem}: {entry.state} {entry.detail}"
    found = msgspec.convert(entry.result, Floors)
    ceiling = "-" if found.ceiling is None else f"{found.ceiling:.4f}"
    lines = [
        f"{entry.problem}: a kernel on these floors scores {ceiling}; nothing {1e3 * found.nothing_ms:.1f} us, "
        f"an empty launch {_span(found.launch_ms, found.launch_most_ms)}, the library {found.dense_tflops:.0f} TFLOPS"
    ]
    for floor in found.shapes:
        size = " ".join(f"{key}={value:g}" for key, value in floor.shape.items())
        share = "-" if floor.share is None else f"{floor.share:.4f}"
        read = _span(floor.read_ms, floor.read_most_ms)
        lines.append(f"  [{size}]: read {read}, floor {1e3 * floor.floor_ms:.1f} us, share {share}")
    return "\n".join(lines)


def _span(least: float, most: float | None) -> str:
    """Return milliseconds as microseconds, with the most of all turns where there were several."""
    return f"{1e3 * least:.1f} us" if most is None else f"{1e3 * least:.1f} to {1e3 * most:.1f} us"


@functools.cache
def _extension() -> Any:
    from torch.utils.cpp_extension import load_inline

    return load_inline(  # type: ignore[no-untyped-call]
        "proofline_floors", _CPP, _CUDA, extra_cuda_cflags=["-O3"], no_implicit_headers=True
    )
