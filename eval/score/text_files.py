"""The plain files that `python -m eval score` reads: translations of systems, references and sources."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import langcodes


@dataclass(frozen=True, kw_only=True)
class ScoreFiles:
    """The lines of all files.

    hypotheses: lines by system, whose name is its path as given; the baseline first.
    references: the lines of each reference file.
    sources: lines, or None if no file was given.
    """

    hypotheses: dict[str, list[str]]
    references: list[list[str]]
    sources: list[str] | None


def read_files(
    hyp: Sequence[Path], ref: Sequence[Path], src: Path | None = None, baseline: Path | None = None
) -> ScoreFiles:
    """Read all files and check that they belong together.

    baseline: one of hyp, or another system; by default the first of hyp.
    Raises ValueError for a file that is empty, not UTF-8 or named twice, and for line counts that differ.
    """
    systems = list(hyp)
    if baseline is not None:
        systems = [baseline, *(path for path in systems if path != baseline)]
    for path in systems:
        if systems.count(path) > 1:
            raise ValueError(f"--hyp names {path} twice; give every system once")
    lines = {path: read_lines(path) for path in dict.fromkeys([*systems, *ref, *([src] if src else [])])}
    expected, first = len(lines[ref[0]]), ref[0]
    for path, texts in lines.items():
        if len(texts) != expected:
            raise ValueError(
                f"{path} has {len(texts)} lines but {first} has {expected}; "
                "every file needs one line a sentence, empty lines kept"
            )
    return ScoreFiles(
        hypotheses={str(path): lines[path] for path in systems},
        references=[lines[path] for path in ref],
        sources=None if src is None else lines[src],
    )


def check_language(tgt: str) -> None:
    """Raise ValueError unless tgt is the code of a language: BCP-47, or a form of it such as `jpn_Jpan`."""
    try:
        valid = langcodes.tag_is_valid(tgt)
    except ValueError:
        valid = False
    if not valid:
        raise ValueError(f"tgt={tgt!r} is no BCP-47 code of a language; give one such as 'en', 'ja' or 'zh-Hans'")


def read_lines(path: Path) -> list[str]:
    """Return the lines of a file, which end at line feeds only, as in sacreBLEU."""
    if not path.is_file():
        raise ValueError(f"{path} does not exist or is not a file; check the path")
    try:
        text = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 at byte {error.start}; convert it first") from error
    if not text:
        raise ValueError(f"{path} is empty; check what should have written it")
    return [line.rstrip("\r") for line in text.removesuffix("\n").split("\n")]
