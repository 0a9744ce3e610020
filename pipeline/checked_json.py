"""JSON objects that hold a sha256 of themselves, so that one flipped byte is noticed."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

CHECKSUM = "sha256"


def dump_checked(values: Mapping[str, Any]) -> str:
    """Return the values as JSON, with their sha256 under the name `CHECKSUM`."""
    return json.dumps({**values, CHECKSUM: _sha256(values)})


def load_checked(text: str) -> dict[str, Any]:
    """Return the values without the checksum. Raises ValueError where they differ from what was written.

    Text without a checksum is taken as it is: versions up to 0.2.3 wrote none.
    """
    values: dict[str, Any] = json.loads(text)
    if not isinstance(values, dict):
        raise ValueError("it is no JSON object")
    if values.pop(CHECKSUM, None) not in (None, _sha256(values)):
        raise ValueError(f"its {CHECKSUM} is not that of its content")
    return values


def _sha256(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()
