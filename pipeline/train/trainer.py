"""The training loop of one process: the same code on one device or many.

The G groups of each step are dealt in turn to the processes that share them. A process runs one group a micro-batch,
together with the processes to which the layout deals the same groups. The loss of a micro-batch is its sum of
cross-entropy over the target tokens of the WHOLE step, plus its share of the auxiliary loss over the groups of that
step. So the step does not depend on how groups were dealt.
"""

import json
import logging
import math
import time
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch.distributed as dist

from pipeline.batch.augmentation import Augmentation
from pipeline.batch.lengths import read_lengths
from pipeline.batch.mixture import Mixture
from pipeline.batch.shapes import fit_targets
from pipeline.files import write_atomically
from pipeline.jobs.process import StopRequest
from pipeline.model.compilation import compile_layers
from pipeline.model.flops import count_parameters
from pipeline.model.noise import seed_group
from pipeline.parallel.build import build, parts_of
from pipeline.parallel.mesh import Mesh
from pipeline.stopping import Stopped
from pipeline.train.checkpoints import Checkpoints
from pipeline.train.engine import build_engine
from pipeline.train.feed import Feed
from pipeline.train.gradient_check import RouterGradientCheck
from pipeline.train.job import TrainJob
from pipeline.train.ledger import ledger, summary
from pipeline.train.measure import FlopCount, MatmulPeak, padding, peak_dtype
from pipeline.train.records import Records
from pipeline.train.routing import RoutingSums
from pipeline.train.spikes import StepGuard
from pipeline.train.totals import Progress, StepSums
from pipeline.train.trainable import freeze
from pipeline.train.upcycling import initialize_from
from pipeline.train.validation import Validation, ValidationResult, sample_score
from pipeline.train.window import Window
from pipeline.vocab.encoded import EncodedSplit
from pipeline.vocab.rows import RowSources
from pipeline.vocab.tokenizer import Vocabulary

logger = logging.getLogger(__name__)

CHECKPOINTS = "checkpoints"


class Trainer:
    """Builds or restores one run and trains to the end of its budget."""

    def __init__(self, job: TrainJob, mesh: Mesh, stop: StopRequest) -> None:
        self.mesh, self.stop = mesh, stop
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.device = mesh.device
        self.data = [EncodedSplit.open(Path(d), "train") for d in job.encoded]
        lengths = read_lengths(job.pairs, job.encoded)
        self.job = job = replace(job, batch=fit_targets(job.batch, lengths))
        dev = [EncodedSplit.open(Path(d), "dev") for d in job.encoded]
        self.validation = Validation(dev, job.batch, mesh)
        vocabulary, seed = Vocabulary.load(Path(job.vocabulary)), job.train.seed
        augmentation = (
            Augmentation(job.batch, job.pairs, self.data, vocabulary, seed=seed) if job.batch.augment else None
        )
        self.mixture = Mixture(job.batch, lengths, seed=seed, augmentation=augmentation)
        sizes = {"source_vocabulary": vocabulary.source_size, "target_vocabulary": vocabulary.target_size}
        positions = max(job.batch.max_source, job.batch.max_target)
        model = build(
            job.model, mesh, **sizes, shared=vocabulary.shared, max_positions=positions, seed=seed, lora=job.train.lora
        )
        self.checkpoints = Checkpoints(Path(job.out) / CHECKPOINTS, job.train.checkpoints)
        self.vocabulary = vocabulary.sha256
        if job.train.initialize_from and self.checkpoints.newest is None:
            path, row_sources = Path(job.train.initialize_from), RowSources.load(Path(job.vocabulary))
            initialize_from(path, model, self.vocabulary, parts_of(model, mesh), row_sources)
        freeze(model, job.train)
        self.parameters = count_parameters(job.model, **sizes, shared=vocabulary.shared)
        self.flops = FlopCount(job.model, vocabulary.target_size)
        self.peak = MatmulPeak(self.device, peak_dtype(self.device, job.train.precision))
        model.recompute(job.runtime.recompute)
        if job.runtime.compile:
            compile_layers(model)
        self.guard = StepGuard(job.train.spikes, fp16=job.train.precision == "fp16")
        self.engine = build_engine(job, model.to(self.device), mesh, self.guard)
        layers = model.moe_layers()
        self.routing = RoutingSums(layers, len(self.data), mesh)
        self.window = Window(self.routing, job.pairs, self.device)
        self.gradient_check = RouterGradientCheck(layers, self.device)
        self.sample_score = sample_score(job, dev, vocabulary, model, mesh)
        self.progress = Progress()
        self.validation_due = False
        self._restore()
        self.feed = Feed(self.mixture, self.data, mesh, self.window.data_wait)

    def run(self) -> None:
        """Train until the budget or patience ends. Raises Stopped, after a save, if a stop is requested."""
        t, progress = self.job.train, self.progress
        self.peak.measure()
        with self._records() as records, self.checkpoints, closing(self.feed):
            if records is not None:
                write_atomically(self.job.log / "mixture.json", json.dumps(self.mixture.table(), indent=1))
            if self.validation_due:
                self._validate_restored(records)
            while not progress.finished(t):
                stop_asked = self._step(records)
                validate = progress.step % t.validate_every == 0 or progress.finished(t)
                result = None
                if validate:
                    with self.engine.averaged():
                        result = self._validate(records)
                    self.peak.measure()
                    stop_asked = stop_asked or result is None
                self.checkpoints.report(records, progress.step)
                last = stop_asked or progress.finished(t)
                if validate or last or self.checkpoints.due(progress.step):
                    self.checkpoints.save(self.engine, self.window.tensors(), self._state(result), records, wait=last)
                if stop_asked and not progress.finished(t):
                    raise Stopped(self.job.title)
            if records is not None:
                self.checkpoints.tidy()  # needed if an earlier attempt crashed right after the last save
                costs = ledger(
                    progress,
                    self.job.model,
                    self.parameters,
                    peak=self.peak.flops,
                    stopped="patience" if progress.out_of_patience(t) else "budget",
                    processes=self.world,
                    layout=self.mesh.layout,
                    metric=t.validate_metric,
                )
                write_atomically(self.job.log / "ledger.json", json.dumps(costs, indent=1))
                records.say(summary(progress, self.peak.flops, t.validate_metric))

    def _records(self) -> AbstractContextManager[Records | None]:
        """Return a context with Records on the first process, and with None on the others."""
        if self.rank != 0:
            return nullcontext()
        job, step = self.job, self.progress.step
        return Records(
            job.log, title=job.title, slot=job.slot, resumed_step=step, wandb=job.runtime.wandb, config=asdict(job)
        )

    def _step(self, records: Records | None) -> bool:
        """Run one optimizer step, packing included. Return true if a stop of any process is requested."""
        began = time.perf_counter()
        step = self.feed.start()
        progress, t = self.progress, self.job.train
        number = progress.step + 1
        rate = t.learning_rate_at(number)
        sums = StepSums(self.routing, len(self.data), self.mesh)
        self.engine.train()
        for micro, batch in self.feed.groups(step):
            seed_group(t.seed, number, micro)
            losses = self.engine(batch, label_smoothing=t.label_smoothing)
            if losses.statistics:
                self.gradient_check.look(losses.statistics)
            self.engine.backward(losses.share(target_tokens=step.target_tokens, nonempty_groups=step.nonempty_groups))
            self.feed.prepare()  # before the last `step` of the optimizer waits for the device
            self.engine.step(rate)
            sums.add(losses, batch)
        sums.reduce(stop=bool(self.stop))
        if self.engine.updated or not self.guard.on:
            self.routing.check_finite(number)
        self.gradient_check.decide()
        cross_entropy, norm = sums.nll / step.target_tokens, self.engine.gradient_norm
        skipped = self.guard.settle(
            number,
            cross_entropy=cross_entropy,
            norm=norm,
            updated=self.engine.updated,
            loss_scale=self.engine.loss_scale,
        )
        seconds = time.perf_counter() - began
        flops = self.flops.step(step, served=self.routing.total("kept"), rows=self.routing.total("rows"))
        progress.add(step.target_tokens, seconds, flops)
        if step.changed is not None:
            progress.count(step.changed.count(step.sentences))
        if skipped is not None:
            sums.pairs_P2.zero_()  # they may be NaN
            if records is not None:
                records.write(skipped)
                records.say(f"step {number} changed no weight ({skipped['reason']})")
        self.window.add(sums, seconds)
        if number % t.log_every == 0 and skipped is None:
            record = {
                "event": "train",
                "step": number,
                "target_tokens": progress.target_tokens,
                "cross_entropy": cross_entropy,
                "lr": rate,
                "gradient_norm": norm,
                "seconds": progress.train_seconds,
                "tokens_per_second": step.target_tokens / seconds,
                "mfu": flops.useful / seconds / self.peak.flops,
                "matmul_peak": self.peak.flops,
                "useful_flops": flops.useful / flops.executed,
                "padding": padding(step),
                **self.window.record(step.nonempty_groups),
            }
            if records is not None:
                records.write(record)
        if records is not None:
            records.progress(
                step=number,
                fraction=progress.fraction(t),
                cross_entropy=cross_entropy,
                tokens_per_second=progress.target_tokens / progress.train_seconds,
            )
        return sums.stop

    def _validate(self, records: Records | None) -> ValidationResult | None:
        """Record and return the results on the development sets, and compare them with the best ones.

        Return None, and record nothing, if a stop is requested before all is translated. Only the validation at the
        end of training, which decides on the best checkpoint of all, goes on to its end.
        """
        train_LPE = self.window.take_usage()
        per_pair = self.validation.run(self.engine, self.routing)
        macro = sum(per_pair) / len(per_pair)
        if not math.isfinite(macro):
            raise ValueError(
                f"validation cross-entropy is {macro} at step {self.progress.step}; what was saved before is kept"
            )
        sample = None
        if self.sample_score is not None:
            ends = self.progress.finished(self.job.train)
            sample = self.sample_score.run(lambda: not ends and bool(self.stop))
            if sample is None:
                self.window.take_usage()  # that of the development sets
                self.window.return_usage(train_LPE)
                return None
        result = ValidationResult(loss=macro, score=sample.score if sample is not None else None)
        self.progress.judge(result.loss, result.score)
        dev_LPE = self.window.take_usage()
        if records is not None:
            with records.tolerating("routing.npz"):
                self.window.write_usage(self.job.log / "routing.npz", train_LPE, dev_LPE)
            record = {
                "event": "validation",
                "step": self.progress.step,
                "target_tokens": self.progress.target_tokens,
                "seconds": self.progress.train_seconds,
                "cross_entropy": macro,
                "pairs": dict(zip(self.job.pairs, per_pair, strict=True)),
            }
            if sample is not None:
                record |= sample.record(self.job.pairs)
            records.write(record)
            mark = " (best)" if self.progress.best_step == self.progress.step else ""
            translated = f", {sample}" if sample is not None else ""
            records.say(f"step {self.progress.step}: validation cross-entropy {macro:.4f}{translated}{mark}")
        return result

    def _validate_restored(self, records: Records | None) -> None:
        """Run the validation that a stop has ended, on the checkpoint that was saved then, and add its result to it."""
        with self.engine.averaged():
            result = self._validate(records)
        if result is None:
            raise Stopped(self.job.title)
        self.checkpoints.add_validation(self.progress.step, result.loss, result.score)

    def _state(self, validation: ValidationResult | None) -> dict[str, Any]:
        """Return the state of the run that is not in tensors, for a checkpoint."""
        return {
            "progress": self.progress.to_json(),
            "validation": validation.loss if validation is not None else None,
            **({"validation_score": validation.score} if validation is not None and self.sample_score else {}),
            "mixture": self.feed.position.state(),
            "model": self.job.model.to_json(),
            "pairs": self.job.pairs,
            "vocabulary": self.vocabulary,
            "ema": self.job.train.ema,
            "engine": self.engine.counters(),
            "guard": self.guard.to_json(),
            **({"lora": asdict(self.job.train.lora)} if self.job.train.lora else {}),
            "world": self.world,
            "matmul_peak": self.peak.flops,
        }

    def _restore(self) -> None:
        tensors = self.window.tensors()
        state = self.checkpoints.restore(self.engine, tensors)
        if state is not None:
            self.progress = Progress.from_json(state["progress"])
            self.mixture.restore(state["mixture"])
            self.window.restore(tensors)
            self.guard.restore(state["guard"])
            translates = self.sample_score is not None and self.progress.step % self.job.train.validate_every == 0
            self.validation_due = translates and state["validation"] is None
            if state["world"] == self.world:
                self.peak.flops = state.get("matmul_peak", 0.0)  # version 0.2.3 and older did not keep it
