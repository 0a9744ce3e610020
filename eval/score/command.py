"""The command `python -m eval score`: check its options, score the files, and format the scores."""

import logging
from argparse import Namespace

from eval.records.scores import SACREBLEU_METRICS
from eval.score import comet
from eval.score.comet import Comet
from eval.score.file_scores import check_seed, score_corpora, score_sentences
from eval.score.metrics import Scorer, caution, scorer_for
from eval.score.output import FORMATS
from eval.score.text_files import check_language, read_files

logger = logging.getLogger(__name__)


def score(options: Namespace) -> str:
    """Return the text that the command prints. Raises ValueError for a wrong option or file before any scoring."""
    check_language(options.tgt)
    _check_metrics(options)
    _check_tests(options)
    files = read_files(options.hyp, options.ref, options.src, options.baseline)
    if options.test and len(files.hypotheses) < 2:
        raise ValueError("a paired test compares systems; give two or more files as --hyp")
    loaded = Comet(options.comet_model) if comet.NAME in options.metric else None
    references = None if options.sentence else files.references  # a sentence is scored with its own references
    scorers: dict[str, Scorer] = {
        metric: scorer_for(metric, options.tgt, references=references, by_sentence=options.sentence)
        for metric in options.metric
        if metric != comet.NAME
    }
    for metric in scorers:
        if text := caution(metric, options.tgt):
            logger.warning("warning: %s", text)
    if options.sentence:
        scores = score_sentences(files, scorers, loaded)
    else:
        test = options.test or ""
        scores = score_corpora(
            files, scorers, loaded, test=test, confidence=options.confidence, resamples=options.resamples
        )
    return FORMATS[options.format](scores)


def _check_metrics(options: Namespace) -> None:
    for metric in options.metric:
        if metric not in (*SACREBLEU_METRICS, comet.NAME):
            raise ValueError(f"metric={metric!r} is unknown; choose from {', '.join((*SACREBLEU_METRICS, comet.NAME))}")
        if options.metric.count(metric) > 1:
            raise ValueError(f"--metric names {metric} twice; give every metric once")
    if comet.NAME not in options.metric:
        return
    if options.comet_model is None or options.src is None or len(options.ref) > 1:
        raise ValueError("metric='comet' needs --comet-model and --src, and takes one file as --ref")
    if options.test or options.confidence:
        raise ValueError("metric='comet' has no test here; leave it out, or use unbabel-comet's own comet-compare")


def _check_tests(options: Namespace) -> None:
    if options.sentence and (options.test or options.confidence):
        raise ValueError("--sentence has no intervals or tests, which are of whole corpora; drop one of the options")
    if options.confidence and options.test:
        raise ValueError("--confidence and a paired test exclude each other; --paired-bs gives intervals too")
    if options.resamples and not (options.confidence or options.test):
        raise ValueError("--resamples needs --confidence, --paired-bs or --paired-ar; add one, or drop it")
    if options.resamples and options.resamples < 2:
        raise ValueError(f"--resamples={options.resamples} must be at least 2")
    if options.baseline is not None and not options.test:
        raise ValueError("--baseline needs --paired-bs or --paired-ar; add one, or drop it")
    check_seed()
