"""The micro-batches of one process. Each is made while the device computes the one before."""

from collections.abc import Generator, Iterator, Sequence

from pipeline.batch.assembly import Sentences, assemble
from pipeline.batch.batch import Batch
from pipeline.batch.mixture import Mixture
from pipeline.batch.packing import Step
from pipeline.parallel.mesh import Mesh
from pipeline.train.totals import Stopwatch

Made = tuple[Step, int, Batch]  # a step, the number of one of its groups, and this group


class Feed:
    """Deals the groups of each step in turn to the processes that share them, and gives this process its own.

    `start` begins a step, and `groups` yields its micro-batches. `prepare` makes the next micro-batch, that of the next
    step after the last one. Call it when the device has work, before the host waits for the device.

    position: the position in the data after the steps that were started, for a checkpoint. What was prepared for the
        next step does not count.
    data_wait: runs while this process makes batches, or waits for packed steps. It does not run during a copy to the
        device, which may have to wait for its place behind the device's work.
    """

    def __init__(self, mixture: Mixture, data: Sequence[Sentences], mesh: Mesh, data_wait: Stopwatch) -> None:
        self.mixture, self.mesh, self.data_wait = mixture, mesh, data_wait
        self.position = mixture.position
        self._stream = _made(mixture, data, mesh)
        self._ready: Made | None = None

    def start(self) -> Step:
        """Begin the next step."""
        step, _, _ = self.prepare()
        self.position = self.mixture.position  # no batch of the step after it is prepared yet
        return step

    def groups(self, step: Step) -> Iterator[tuple[int, Batch]]:
        """Yield the number of each group of this process and its batch, on the device."""
        for _ in _own(step, self.mesh):
            _, number, batch = self.prepare()
            self._ready = None
            yield number, batch

    def prepare(self) -> Made:
        """Make the next micro-batch, unless it is ready."""
        if self._ready is None:
            with self.data_wait:
                step, number, batch = next(self._stream)
            self._ready = step, number, batch.to(self.mesh.device)
        return self._ready

    def close(self) -> None:
        """End the thread that packs steps."""
        self._stream.close()


def _made(mixture: Mixture, data: Sequence[Sentences], mesh: Mesh) -> Generator[Made]:
    for step in mixture:
        sentences = data if step.changed is None else step.changed.over(data)
        for number in _own(step, mesh):
            yield step, number, assemble(step.group(number), step.shape, sentences)


def _own(step: Step, mesh: Mesh) -> range:
    """Return the numbers of the groups of this process."""
    return range(mesh.batch_rank, step.num_groups, mesh.batch_size)
