"""Cases of rules on the source: what is forbidden, copied, missing or labelled wrongly.

The texts are small on purpose; none of them is a real submission.
"""

import msgspec

from grading.integrity import Context
from grading.problem import DECKS, load_problem
from grading.record import ArchiveFile, RunKey
from tests.factories import make_context, make_record

W4 = load_problem("hard", "07_w4a16_gemm")
FP8 = load_problem("hard", "01_fp8_gemm")
TOPK = load_problem("hard", "05_topk_bitonic")
MEGA = load_problem("cuda", "01_glm52_fused_moe")


def source(text: str, problem: object = W4, path: str = "solution.py", **sidecars: str) -> Context:
    """A run with a solution, and with sidecars whose names have ``__`` for the dot."""
    texts = {path: text, **{name.replace("__", "."): value for name, value in sidecars.items()}}
    files = tuple(ArchiveFile(name, "0" * 64, len(value), "sidecar") for name, value in texts.items())
    key = RunKey(
        problem.deck, "H200" if problem.deck == "hard" else "H100", f"20260701_120000_codex_gpt-test_{problem.id}"
    )
    record = make_record(problem, log="", key=key, files=files)
    return make_context(record, files={name: value.encode() for name, value in texts.items()})


def labelled(label: str | None, text: str, **files: bytes) -> Context:
    context = source(text)
    record = msgspec.structs.replace(context.record, framework=label)
    named = {name.replace("__", "."): data for name, data in files.items()}
    return make_context(record, files={**context.files, **named})


def forbidden(text: str, problem: object = W4, **sidecars: str) -> tuple[str, str, object]:
    return text, problem, sidecars


LINEAR = "torch.nn.functional.linear"
CUDA = """#include <torch/extension.h>
// never at::_scaled_mm( in this file
__global__ void k(float* x) { x[0] = 1; }
"""
SPELLED = {
    "plainly": "import torch\ny = torch.nn.functional.linear(x, w)\n",
    "through an alias of torch": "import torch as t\ny = t.nn.functional.linear(x, w)\n",
    "through the usual F": "import torch.nn.functional as F\ny = F.linear(x, w)\n",
    "through a from-import": "from torch.nn.functional import linear as project\ny = project(x, w)\n",
    "through an assigned module": "import torch\nfunctional = torch.nn.functional\ny = functional.linear(x, w)\n",
    "through an assigned function": "import torch\nproject = torch.nn.functional.linear\ny = project(x, w)\n",
    "handed on without a call": "import torch\ny = apply(torch.nn.functional.linear, x)\n",
    "through getattr with a sum": "import torch\ny = getattr(torch.nn.functional, 'lin' + 'ear')(x, w)\n",
    "through getattr with a name": "import torch\nname = 'linear'\ny = getattr(torch.nn.functional, name)(x, w)\n",
    "through getattr with a join": "import torch\ny = getattr(torch.nn.functional, ''.join(['lin', 'ear']))(x, w)\n",
    "through getattr with a reversal": "import torch\ny = getattr(torch.nn.functional, 'raenil'[::-1])(x, w)\n",
    "through getattr with a formatted text": "import torch\ny = getattr(torch.nn.functional, f\"{'lin'}ear\")(x, w)\n",
    "through importlib": "import importlib\ny = importlib.import_module('torch.nn.functional').linear(x, w)\n",
    "through __import__": "y = __import__('torch').nn.functional.linear(x, w)\n",
    "through sys.modules": "import sys\ny = sys.modules['torch.nn.functional'].linear(x, w)\n",
    "through __dict__": "import torch\ny = torch.nn.functional.__dict__['linear'](x, w)\n",
    "through vars": "import torch\ny = vars(torch.nn.functional)['linear'](x, w)\n",
    "in torch's own spelling": "import torch\ny = torch._C._nn.linear(x, w)\n",
    "as an operator": "import torch\ny = torch.ops.aten.linear.default(x, w)\n",
    "inside a class": "import torch\nclass Model:\n    def forward(self, x):\n        return torch.nn.functional.linear(x, self.w)\n",
}
SPEAKS = [
    *(("source.forbidden_call", label, lambda text=text: source(text)) for label, text in SPELLED.items()),
    (
        "source.forbidden_call",
        "an import",
        lambda: source("import fla.ops.kda as k\n", load_problem("hard", "02_kda_cutlass")),
    ),
    ("source.forbidden_call", "a method of a tensor", lambda: source("def f(x):\n    return x.topk(8)\n", TOPK)),
    (
        "source.forbidden_call",
        "a tensor's sort",
        lambda: source("def f(x):\n    v, i = x.sort(dim=1)\n    return v\n", TOPK),
    ),
    ("source.forbidden_call", "in a sidecar", lambda: source("x = 1\n", FP8, k__cu="auto y = at::_scaled_mm(a, b);\n")),
    (
        "source.forbidden_call",
        "in embedded C++",
        lambda: source(f"src = '''{CUDA}auto y = torch::_scaled_mm(a, b);'''\n", FP8),
    ),
    ("source.unparsable", "a bracket left open", lambda: source("x = (1\n")),
    ("source.unparsable", "nested without end", lambda: source("x = " + "-" * 50_000 + "1\n")),
    ("source.unparsable", "megabytes of it", lambda: source("x = 1\n", big__cu="int x;\n" * 400_000)),
    ("source.missing_file", "a sidecar", lambda: source(LOADS)),
    ("source.label_disagrees", "no Triton in it", lambda: labelled("triton", "import torch\n")),
    ("source.label_disagrees", "no kernel in it", lambda: labelled("cuda_raw", "import torch\n")),
    ("source.label_disagrees", "eager with a kernel", lambda: labelled("eager", f"src = '''{CUDA}'''\n")),
    (
        "source.label_disagrees",
        "no evidence",
        lambda: labelled(None, "x = 1\n", cuda_language__json=b'{"has_cuda_evidence": true}'),
    ),
    ("source.label_disagrees", "broken sidecar", lambda: labelled(None, "x = 1\n", cuda_language__json=b"{")),
    (
        "source.copies_reference",
        "with a word changed",
        lambda: source(REFERENCE.replace("4096, 4096", "4096, 2048"), FP8),
    ),
]
LOADS = "from torch.utils.cpp_extension import load\next = load(name='k', sources=['kernel.cu'])\n"
REFERENCE = (DECKS / "hard" / "01_fp8_gemm" / "reference.py").read_text()
FALLBACK = """import torch
try:
    ext = build()
except RuntimeError:
    ext = None
def slow(x, w):
    return torch.nn.functional.linear(x, w)
def forward(x, w):
    if ext is None:
        return slow(x, w)
    return ext.run(x, w)
"""
HONEST = {
    "in a comment": "# torch.nn.functional.linear is not used here\nx = 1\n",
    "in a docstring": '"""Replaces torch.nn.functional.linear."""\nx = 1\n',
    "in a text": "name = 'torch.nn.functional.linear'\n",
    "as a layer that only holds the weight": "import torch\nlayer = torch.nn.Linear(4, 4)\n",
    "in an assertion's message": "assert x, 'use F.linear'\n",
    "by a function of its own": "def linear(x, w):\n    return x\ny = linear(1, 2)\n",
    "on an object of its own": "class K:\n    def linear(self, x):\n        return x\ny = K().linear(3)\n",
    "as the fallback of a failed build": FALLBACK,
    "in an exception handler": "import torch\ntry:\n    y = k(x)\nexcept Exception:\n    y = torch.nn.functional.linear(x, w)\n",
    "the word stream and CUDAGraph": "import torch\n# no CUDAGraph\ns = torch.cuda.current_stream()\n",
}
SILENT = [
    *(("source.forbidden_call", label, lambda text=text: source(text)) for label, text in HONEST.items()),
    ("source.forbidden_call", "sorting a list", lambda: source("names = []\nnames.sort()\nx = sorted(names)\n", TOPK)),
    ("source.forbidden_call", "sorting by a key", lambda: source("b = a.sort(key=len)\n", TOPK)),
    (
        "source.forbidden_call",
        "another library's function",
        lambda: source("import numpy as np\ny = np.argsort(x)\n", TOPK),
    ),
    (
        "source.forbidden_call",
        "a language's own function",
        lambda: source("import triton.language as tl\ny = tl.topk(x, 8)\n", TOPK),
    ),
    ("source.forbidden_call", "a comment in CUDA", lambda: source("x = 1\n", FP8, k__cu=CUDA)),
    (
        "source.forbidden_call",
        "a text in CUDA",
        lambda: source("x = 1\n", FP8, k__cu='const char* s = "at::_scaled_mm(a)";\n'),
    ),
    (
        "source.forbidden_call",
        "dead code in CUDA",
        lambda: source("x = 1\n", FP8, k__cu="#if 0\nat::_scaled_mm(a);\n#endif\n"),
    ),
    (
        "source.forbidden_call",
        "the deck's own files",
        lambda: source("x = 1\n", FP8, reference__py="import torch\ntorch._scaled_mm(a)\n"),
    ),
    ("source.unparsable", "valid", lambda: source("x = 1\n")),
    ("source.missing_file", "a sidecar that is there", lambda: source(LOADS, kernel__cu=CUDA)),
    (
        "source.missing_file",
        "a file that it writes itself",
        lambda: source("open('kernel.cu', 'w').write(s)\n" + LOADS),
    ),
    ("source.missing_file", "a header of the toolkit", lambda: source(LOADS.replace("kernel.cu", "/usr/include/a.cu"))),
    ("source.label_disagrees", "Triton with inline assembly", lambda: labelled("ptx", "import triton\n")),
    ("source.label_disagrees", "two labels", lambda: labelled("cuda_raw+triton", f"import triton\ns = '''{CUDA}'''\n")),
    ("source.label_disagrees", "no source archived", lambda: make_context(make_record(framework="triton"))),
    ("source.label_disagrees", "unknown", lambda: labelled("unknown", "import torch\n")),
    ("source.copies_reference", "a solution with the same class", lambda: source(SKELETON, FP8)),
    ("lead.forbidden_fallback", "never used", lambda: source("import torch\n")),
    ("lead.written_fast", "a short source", lambda: fast(1_000, 60)),
    ("lead.written_fast", "a long session", lambda: fast(40_000, 7_200)),
]
SKELETON = """import torch
class Model(torch.nn.Module):
    def __init__(self, M, N, K):
        super().__init__()
        self.register_buffer("weight", torch.zeros(N, K))
    def forward(self, x):
        return kernel(x, self.weight)
def kernel(x, w):
    out = torch.empty(x.shape[0], w.shape[0])
    launch[(1,)](x, w, out)
    return out
"""


def fast(size: int, seconds: int) -> Context:
    context = source("x = 1\n" * (size // 6 + 1))
    record = msgspec.structs.replace(context.record, elapsed_seconds=seconds)
    return make_context(record, files=context.files)


def gated(text: str, is_cheat: bool, problem: object = MEGA) -> Context:
    """A source of a CUDA deck with what the deck's language gate wrote of it."""
    context = source(text, problem)
    said = b'{"triton_cheat": true}' if is_cheat else b'{"triton_cheat": false}'
    return make_context(context.record, files={**context.files, "cuda_language.json": said})


SILENT += [
    ("source.label_disagrees", "a cheat that the gate named", lambda: gated("import triton\n", True)),
    ("source.label_disagrees", "no Triton in it", lambda: gated("import torch\n", False)),
    ("source.label_disagrees", "a deck of any language", lambda: gated("import triton\n", False, W4)),
]
SPEAKS += [
    ("source.label_disagrees", "Triton on a CUDA deck", lambda: gated("import triton\n", False)),
    ("source.label_disagrees", "eager with Triton", lambda: labelled("eager", "import triton\n")),
    ("lead.forbidden_fallback", "a failed build", lambda: source(FALLBACK)),
    ("lead.written_fast", "forty kilobytes in a minute", lambda: fast(40_000, 60)),
]
