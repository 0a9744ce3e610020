"""The stage of `make backtranslate` and `make distill`: a table of lines and their translations."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pipeline.corpus.languages import LangPair
from pipeline.dag.artifact import Artifact
from pipeline.dag.stage import Stage
from pipeline.dag.system import translating
from pipeline.decode.config import DecodeConfig


def translated_lines(
    name: Literal["backtranslate", "distill"],
    pair: LangPair,
    vocabulary: Artifact,
    model: Artifact,
    *,
    text: Mapping[str, Any],
    text_inputs: Mapping[str, Artifact],
    decode: DecodeConfig,
    max_source_tokens: int,
    run: Callable[[Path], None],
    ensemble: Sequence[Artifact] = (),
) -> Stage:
    """Declare a table of lines and their translations, which the command of this name makes by a finished run.

    text, text_inputs: what identifies the lines, in the configuration and as artifacts.
    max_source_tokens: longer lines are left out.
    ensemble: models that translate together with `model`.
    """
    search = decode.decisive(bool(ensemble))
    return Stage(
        name=name,
        version=1,
        config={"pair": pair.name, **text, "decode": search, "max_source_tokens": max_source_tokens},
        inputs={**translating(vocabulary, model, ensemble), **text_inputs},
        run=run,
        label=pair.name,
        resumable=True,
    )
