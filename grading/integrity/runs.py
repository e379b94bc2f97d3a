"""Rules on the record as a whole: tampering, contradictions, identity, regrades."""

import datetime
from collections.abc import Iterator

from grading.integrity.base import Context, Statement, rule
from grading.record import RUN_ID, model_slug


@rule("run.template_mutated", "A fixed file of the deck was changed", "block", is_waivable=False)
def check_template_mutated(context: Context) -> Iterator[Statement]:
    """The harness recorded that a deck file was edited, deleted or added.

    Example: a tolerance raised in the problem's data. An honest repair of a broken deck file looks the same here and is
    told apart by people: the run is then graded again on the repaired deck.
    """
    if context.record.template_mutated:
        yield Statement(
            "The session changed a file of the deck; what was measured is not this problem.",
            "result.json",
            data={"template_mutated": True},
        )


@rule("run.contradictory", "Fields of the record contradict each other", "warn")
def check_contradictory(context: Context) -> Iterator[Statement]:
    """A correct run with a failure reason, a wrong run with a score, or a pass without a solution.

    Example: correct is true and the reason is check_failed. After a regrade the old reason is often left in place;
    it is reported and not used.
    """
    record = context.record
    reason = record.failure_reason
    if record.correct and reason not in (None, "", "pass"):
        regraded = " It was regraded; the old reason was left in place and is not used." if record.regrade else ""
        yield Statement(
            f"correct is true and failure_reason is {reason!r}.{regraded}",
            "result.json",
            data={"correct": True, "failure_reason": reason},
        )
    if record.correct is False and record.score_text is not None:
        yield Statement(
            f"correct is false and the score {record.score_text} is given.",
            "result.json",
            data={"correct": False, "score": record.score_text},
        )
    if record.correct and record.has_solution is False:
        yield Statement("correct is true and has_solution is false.", "result.json", data={"has_solution": False})
    if record.correct and record.benchmark_exit_code not in (None, 0) and record.score_text is not None:
        yield Statement(
            f"a score is given and the benchmark ended with exit code {record.benchmark_exit_code}.",
            "result.json",
            data={"benchmark_exit_code": record.benchmark_exit_code},
        )


@rule("run.incomplete_session", "The agent's session did not end by itself", "warn")
def check_incomplete_session(context: Context) -> Iterator[Statement]:
    """The harness saw no terminal event or ended with an error: the result may be a milestone, not the final answer.

    Example: a session that was cut by a credit limit. A lower score than a sibling's says nothing about the model then.
    """
    if context.record.session_complete is False:
        yield Statement(
            "The session ended before the agent did; the archived solution may be unfinished.",
            "result.json",
            data={"session_complete": False},
        )
    if context.record.harness_exit_code not in (None, 0):
        yield Statement(
            f"The harness ended with exit code {context.record.harness_exit_code}.",
            "result.json",
            data={"harness_exit_code": context.record.harness_exit_code},
        )


@rule("run.id_mismatch", "The run id does not match the run", "block")
def check_id_mismatch(context: Context) -> Iterator[Statement]:
    """The folder name, the id inside, and the problem, harness and model it spells must agree.

    Example: a folder of one model whose result names another. Slashes, colons and brackets of a model's name are
    underscores in an id, and a process number may follow the problem.
    """
    record, run_id = context.record, context.record.key.run_id
    if record.inner_run_id is not None and record.inner_run_id != run_id:
        yield Statement(
            f"The folder is named {run_id}, result.json says {record.inner_run_id}.",
            "result.json",
            data={"name": run_id, "inside": record.inner_run_id},
        )
    match = RUN_ID.fullmatch(run_id)
    if match is None:
        yield Statement(
            f"The run id {run_id} does not follow YYYYMMDD_HHMMSS_harness_model_problem.", data={"run_id": run_id}
        )
        return
    expected = f"{model_slug(record.model)}_{record.problem}"
    if match.group(2) != record.harness or not match.group(3).startswith(expected):
        yield Statement(
            f"The run id {run_id} spells another harness, model or problem than the record: {record.harness}, "
            f"{record.model}, {record.problem}.",
            "result.json",
            data={"run_id": run_id, "harness": record.harness, "model": record.model, "problem": record.problem},
        )


@rule("run.conflicting_content", "Other content arrived under the same run id", "warn")
def check_conflicting_content(context: Context) -> Iterator[Statement]:
    """The first archive stands; the other is kept aside by its digest until somebody settles it.

    Example: the same run id from two machines. Nothing that arrives later can replace what was judged.
    """
    for digest in context.conflicts:
        yield Statement(
            f"Another archive arrived under this run id with other content ({digest[:12]}); the first one is used.",
            data={"digest": digest},
        )


@rule("run.before_deck", "The run is older than its deck", "warn")
def check_before_deck(context: Context) -> Iterator[Statement]:
    """The date in the run id lies before the deck's first day.

    Example: an id of 2025 on a deck of 2026: the problem was another one then, or the clock was wrong.
    """
    match = RUN_ID.fullmatch(context.record.key.run_id)
    if match is None or context.deck.first_run is None:
        return
    try:
        day = datetime.datetime.strptime(match.group(1)[:8], "%Y%m%d").replace(tzinfo=datetime.UTC).date()
    except ValueError:
        return
    if day < context.deck.first_run:
        yield Statement(
            f"The run id says {day}; the deck {context.deck.id} begins on {context.deck.first_run}.",
            data={"day": str(day), "first_run": str(context.deck.first_run)},
        )
