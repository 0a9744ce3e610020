"""The environment that an exported model is read in."""

import pytest

from tests.exports import V4, V5


@pytest.fixture(scope="module", params=[V4, V5], ids=["transformers4", "transformers5"])
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)
