"""Judge a folder of run archives without a database, as recompute does with one."""

import json
from collections.abc import Iterator
from pathlib import Path

from grading.archive import RunItem, read_paths
from grading.hardware import load_gpus
from grading.integrity import Context, Finding, judge
from grading.integrity.crossrun import Index, sign
from grading.integrity.twins import typical_ms
from grading.names import find_model
from grading.problem import load_decks
from grading.score import recompute

FROZEN = Path(__file__).parents[1] / "grading" / "corpus_alerts.json"


def alerts(root: Path) -> dict[str, list[str]]:
    """Return, by run, the codes of its findings; no run has audits here."""
    return {
        key: sorted({finding.code for finding in findings} - {"audit.missing"}) for key, findings in judge_archive(root)
    }


def judge_archive(root: Path) -> Iterator[tuple[str, tuple[Finding, ...]]]:
    """Yield every run's key with its findings; audits are left out."""
    items = sorted((item for item in read_paths([root]) if isinstance(item, RunItem)), key=lambda item: item.record.key)
    contexts, signatures = [], []
    for order, item in enumerate(items):
        record, gpu = item.record, load_gpus()[item.record.key.gpu]
        deck = load_decks()[record.key.deck]
        problem = deck.problems[record.problem]
        score = recompute(record, problem, gpu.key, gpu.current)
        files = {entry.path: item.blobs[entry.digest] for entry in record.files}
        entry = find_model(record.model)
        model = entry.slug if entry else record.model
        author = f"{model} {record.harness} {record.effort}"
        times = typical_ms(score.shapes)
        signatures.append(sign(record, files, times, key=str(record.key), order=order, model=model, author=author))
        contexts.append((record, problem, deck, gpu, score, files, entry is not None))
    index = Index(signatures)
    for signature, (record, problem, deck, gpu, score, files, is_known) in zip(signatures, contexts, strict=True):
        context = Context(
            record=record,
            problem=problem,
            deck=deck,
            gpu=gpu,
            score=score,
            files=files,
            neighbours=index.neighbours(signature),
            is_known_model=is_known,
        )
        yield signature.key, judge(context)


if __name__ == "__main__":
    corpus = Path(__file__).parents[3] / "shared" / "corpus" / "runs"
    FROZEN.write_text(json.dumps(alerts(corpus), indent=1, sort_keys=True) + "\n")
