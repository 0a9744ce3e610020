"""A process of a training job whose second process fails while it translates a sample."""

from pipeline.jobs.process import run_process
from pipeline.train.__main__ import train


def work(values, stop):
    from pipeline.train import sample_score

    search = sample_score.search

    def failing(model, requests, config, peers):
        if peers.mesh.batch_rank == 1:
            raise ValueError("broken on purpose")
        return search(model, requests, config, peers)

    sample_score.search = failing
    train(values, stop)


if __name__ == "__main__":
    run_process(work)
