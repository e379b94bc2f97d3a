"""What a source is written in."""

import pytest

from grading.source.framework import FRAMEWORKS, framework_of

CUDA = 'import torch\nSOURCE = r"""#include <cuda.h>\n__global__ void k() {}"""\n'


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"solution.py": "import torch\n"}, "pytorch"),
        ({"solution.py": "import torch\nimport triton\n"}, "triton"),
        ({"solution.py": "from triton import language\n"}, "triton"),
        ({"solution.py": CUDA}, "cuda"),
        ({"solution.py": CUDA + "import triton\n"}, "cuda+triton"),
        ({"solution.py": "import torch\n", "kernel.cu": "__global__ void k() {}"}, "cuda"),
        ({"solution.py": "import torch\n", "k.cu": "__global__ void k() { cute::copy(); }"}, "cuda+cutlass"),
        ({"solution.py": "import cutlass.cute as cute\n"}, "cutlass"),
        ({"solution.py": "# import triton, __global__\nimport torch\n"}, "pytorch"),
        ({"solution.py": "not python ((("}, "pytorch"),
        ({"result.json": "{}", "framework.txt": "triton"}, None),
        ({}, None),
    ],
)  # fmt: skip
def test_it_is_read_from_the_source(files: dict[str, str], expected: str | None) -> None:
    assert framework_of({path: text.encode() for path, text in files.items()}) == expected


def test_no_word_holds_another_so_that_one_can_be_searched_for() -> None:
    assert not [(a, b) for a in FRAMEWORKS for b in FRAMEWORKS if a != b and a in b]
