"""Child process: one item of a survey that needs PyTorch.

Usage: ``python -m grading.survey.child WORK.json OUT.json``.
"""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from grading.survey.agreement import measure_agreement
from grading.survey.book import write_json
from grading.survey.floors import measure_floors
from grading.survey.kernels import measure_kernels
from grading.survey.seeds import measure_seeds
from grading.survey.tolerances import measure_errors
from grading.survey.work import Work

MEASURES: dict[str, Callable[[Work], Iterator[msgspec.Struct]]] = {
    "agreement": measure_agreement,
    "floors": measure_floors,
    "kernels": measure_kernels,
    "seeds": measure_seeds,
    "tolerances": measure_errors,
}


def main(work_file: str, out_file: str) -> int:
    """Measure; write the result anew whenever there is more of it. Raises what the measured code raises."""
    import torch

    work = msgspec.json.decode(Path(work_file).read_bytes(), type=Work)
    with torch.no_grad():
        for result in MEASURES[work.survey](work):
            write_json(Path(out_file), result)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
