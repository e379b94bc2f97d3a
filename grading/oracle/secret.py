"""The secret of a grade: drawn after the candidate was imported, committed to at once, revealed at the end."""

import hashlib
import hmac
import random
import secrets

SECRET_BYTES = 32


class Secret:
    """256 bits, and the seeds derived from them."""

    def __init__(self, value: bytes | None = None) -> None:
        self._value = value if value is not None else secrets.token_bytes(SECRET_BYTES)

    @property
    def commitment(self) -> str:
        """SHA-256 of the secret, which can be logged at once."""
        return hashlib.sha256(self._value).hexdigest()

    def seed(self, label: str) -> int:
        """Return the 63-bit seed of a label such as ``0/nominal/17``."""
        return int.from_bytes(hmac.digest(self._value, label.encode(), "sha256")[:8], "big") >> 1

    def rng(self, label: str) -> random.Random:
        """Return a generator for Python's own draws."""
        return random.Random(self.seed(label))

    def reveal(self) -> str:
        """Return the secret as hex. Call it only when the worker has ended."""
        return self._value.hex()
