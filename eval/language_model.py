"""The n-gram model that py3langid ships, applied to many texts at once.

N texts, A bytes of all texts, F n-grams, L languages, C columns of the table. The library moves an automaton over the
bytes of one text, and adds a row of its table for every n-gram. Here all texts take each step together, with the same
result.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from py3langid.langid import MODEL_FILE, LanguageIdentifier

MAX_BYTES = 1024  # bytes of a text that are read; more hardly change the result
_BLOCK_ROWS = 2000
_BITS = 20  # lowest bits of a key, which hold the n-gram; the higher ones hold the text
_MASK = (1 << _BITS) - 1

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class LanguageModel:
    """The automaton and the table of the model.

    labels: the languages, [L].
    columns: the language of each column, [C]. A language in two scripts has two columns.
    moves: the next state, by 256 * base + byte.
    bases: the base of each state, [states].
    ngrams: the n-gram that a state completes, or -1, [states].
    table_FC: log probability of each n-gram by column.
    priors_C: log probability of each column.
    """

    labels: tuple[str, ...]
    columns: npt.NDArray[np.int64]
    moves: npt.NDArray[Any]
    bases: npt.NDArray[np.int64]
    ngrams: npt.NDArray[np.int32]
    table_FC: Floats
    priors_C: Floats

    def probabilities(self, array: pa.StringArray) -> Floats:
        """Return the probability of each language for each text, [N, L]; they are equal without known n-grams."""
        upper = pc.utf8_is_upper(array)
        if pc.any(upper).as_py():
            array = pc.if_else(upper, pc.utf8_lower(array), array)
        result = np.empty((len(array), len(self.labels)), dtype=np.float32)
        for start in range(0, len(array), _BLOCK_ROWS):
            block = array.slice(start, _BLOCK_ROWS)
            result[start : start + len(block)] = self._block(*_bytes_of(block))
        return result

    def _block(self, data_A: npt.NDArray[np.uint8], bounds: npt.NDArray[np.int64]) -> Floats:
        lengths = np.diff(bounds)
        scores_NC = self._scores(self._walk(data_A, bounds), bounds)
        scores_NC /= np.sqrt(np.maximum(lengths, 1))[:, None]  # the library's temperature: calibrated at any length
        scores_NC -= scores_NC.max(axis=1, keepdims=True)
        np.exp(scores_NC, out=scores_NC)
        result = np.zeros((len(lengths), len(self.labels)), dtype=np.float32)
        for column, label in enumerate(self.columns):
            result[:, label] += scores_NC[:, column]
        result /= result.sum(axis=1, keepdims=True)
        return result

    def _walk(self, data_A: npt.NDArray[np.uint8], bounds: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
        """Return the n-gram that ends at each byte, or -1: [A]."""
        lengths = np.diff(bounds)
        order = np.argsort(-lengths, kind="stable")  # so that the texts which have not ended are always the first
        starts = bounds[:-1][order]
        num_left = len(lengths) - np.searchsorted(np.sort(lengths), np.arange(lengths.max(initial=0)), side="right")
        ngrams_A = np.full(len(data_A), -1, dtype=np.int32)
        states = np.zeros(len(starts), dtype=self.moves.dtype)
        for step, num in enumerate(num_left.tolist()):
            positions = starts[:num] + step
            states[:num] = self.moves[self.bases[states[:num]] + data_A[positions]]
            ngrams_A[positions] = self.ngrams[states[:num]]
        return ngrams_A

    def _scores(self, ngrams_A: npt.NDArray[np.int32], bounds: npt.NDArray[np.int64]) -> Floats:
        """Return the log posterior of each column: [N, C]; zeros for a text without n-grams."""
        num = len(bounds) - 1
        text_A = np.repeat(np.arange(num) << _BITS, np.diff(bounds))
        keys = np.sort((text_A + ngrams_A)[ngrams_A >= 0])
        firsts = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1]))) if len(keys) else keys
        weights = np.log1p(np.diff(np.append(firsts, len(keys))).astype(np.float32))
        keys = keys[firsts]
        ngrams = keys & _MASK
        ends = np.searchsorted(keys >> _BITS, np.arange(num + 1)).tolist()
        scores_NC = np.zeros((num, len(self.columns)), dtype=np.float32)
        for text, (start, stop) in enumerate(zip(ends, ends[1:], strict=False)):
            if stop > start:
                scores_NC[text] = weights[start:stop] @ self.table_FC[ngrams[start:stop]] + self.priors_C
        return scores_NC


@cache
def language_model() -> LanguageModel:
    """Return the model, which is read once in a process: half a second, 0.2 GB."""
    library = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    labels = tuple(dict.fromkeys(library.nb_classes))
    table_FC = np.asarray(library.nb_ptc, dtype=np.float32)
    assert len(table_FC) <= _MASK
    return LanguageModel(
        labels=labels,
        columns=np.array([labels.index(name) for name in library.nb_classes]),
        moves=np.asarray(library.tk_nextmove),
        bases=np.asarray(library.tk_row).astype(np.int64) * 256,
        ngrams=np.asarray(library.tk_output, dtype=np.int32),
        table_FC=table_FC,
        priors_C=np.asarray(library.nb_pc, dtype=np.float32),
    )


def _bytes_of(array: pa.StringArray) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return the first MAX_BYTES of every text as one array, and their bounds."""
    _, positions, data = array.buffers()
    bounds = np.frombuffer(positions, dtype=np.int32)[array.offset : array.offset + len(array) + 1].astype(np.int64)
    data_A = np.frombuffer(data, dtype=np.uint8)[: bounds[-1]] if data is not None else np.empty(0, dtype=np.uint8)
    lengths = np.diff(bounds)
    if lengths.max(initial=0) <= MAX_BYTES:
        return data_A[bounds[0] :], bounds - bounds[0]
    shortened = np.minimum(lengths, MAX_BYTES)
    new_bounds = np.concatenate(([0], np.cumsum(shortened)))
    index = np.arange(new_bounds[-1]) + np.repeat(bounds[:-1] - new_bounds[:-1], shortened)
    return data_A[index], new_bounds
