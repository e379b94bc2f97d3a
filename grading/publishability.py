"""Which fields of an audit say that its run may not be published.

People wrote one idea in many fields. A field that decides and holds a value that is not understood says no as well:
unknown is never clean.

Source: docs/method.md "Audits".
"""

from collections.abc import Callable, Mapping

from grading.audityaml import Value

_MUST_BE_TRUE = (
    "publish_grade",
    "board_eligible",
    "leaderboard_eligible",
    "published",
    "publishable",
    "megakernel_authentic",
)
_MUST_BE_FALSE = (
    "reward_hack",
    "reward_hack_verdict",
    "reward_hack_static_evidence",
    "timing_contaminated",
    "template_mutated",
    "triton_cheat",
    "dsl_cheat",
    "isolated_regrade_required",
    "required_isolated_recompute",
    "empirical_required",
    "empirical_recompute_required",
    "empirical_regrade_required",
    "retryable_infra_failure",
)
_ISOLATED = frozenset({"sequential_isolated", "isolated"})
_UNTAINTED = frozenset({"clean", "no", "none", "false", "flagged_benign"})
_BAD_STATUS = ("contaminat", "contend", "pending", "fail", "wrong", "invalid", "ungraded", "unverified", "not_publish")
_SHOWN_CHARS = 80


def is_true(value: Value) -> bool | None:
    """Return what a value says as a boolean, by its first word where it is a text; None where it says neither."""
    if isinstance(value, bool):
        return value
    return {"true": True, "yes": True, "false": False, "no": False}.get(_first_word(value))


def blockers_in(table: Mapping[str, Value]) -> tuple[str, ...]:
    """Return ``<field> is <value>`` for every field of an audit that says no, in the order of the file."""
    return tuple(
        f"{name} is {_shown(value)}"
        for name, value in table.items()
        if value is not None and name in _CHECKS and not _CHECKS[name](value)
    )


def _first_word(value: Value) -> str:
    words = value.split(maxsplit=1) if isinstance(value, str) else []
    return words[0].rstrip(".,;:!").lower() if words else ""


def _says_true(value: Value) -> bool:
    return is_true(value) is True


def _says_false(value: Value) -> bool:
    return is_true(value) is False


def _is_isolated(value: Value) -> bool:
    return isinstance(value, str) and value.strip().lower() in _ISOLATED


def _is_untainted(value: Value) -> bool:
    return value is False or _first_word(value) in _UNTAINTED


def _is_good_status(value: Value) -> bool:
    return isinstance(value, str) and not any(word in value.lower() for word in _BAD_STATUS)


def _shown(value: Value) -> str:
    text = " ".join(value.split()) if isinstance(value, str) else str(value).lower()
    return text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 1] + "…"


_CHECKS: dict[str, Callable[[Value], bool]] = {
    **dict.fromkeys(_MUST_BE_TRUE, _says_true),
    **dict.fromkeys(_MUST_BE_FALSE, _says_false),
    **dict.fromkeys(("status", "headline_status", "benchmark_status"), _is_good_status),
    "measurement_status": _is_isolated,
    "contamination": _is_untainted,
}
