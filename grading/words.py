"""Numbers with their nouns, as people read them."""


def counted(number: int, one: str, many: str = "") -> str:
    """Return a number with its noun: ``1 run``, ``2 runs``; ``many`` where an s is not enough."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
