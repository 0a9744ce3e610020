import pytest
import torch

from tests.cuda.guard import obstacle
from tests.cuda.process import cpu_process, gpu_process, impostor_process

COUNTED = "counts of a micro-batch"


@pytest.fixture(scope="session")
def on_impostor():
    """A function that runs another one in a process with the impostor: on_impostor(function, *arguments)."""
    if reason := obstacle():
        pytest.skip(reason)
    with impostor_process() as run:
        yield run


@pytest.fixture(scope="session")
def on_cuda(request):
    """The same in a process with the GPU of this machine, or with the impostor where it has none."""
    if not torch.cuda.is_available():
        yield request.getfixturevalue("on_impostor")
        return
    with gpu_process() as run:
        yield run


@pytest.fixture(scope="session")
def on_cpu():
    """A function that runs another one in a process without the impostor."""
    with cpu_process() as run:
        yield run


def pytest_terminal_summary(terminalreporter):
    """Print the counts of a micro-batch, which a test that passes would not show."""
    for report in terminalreporter.stats.get("passed", []):
        for name, value in report.user_properties:
            if name == COUNTED:
                terminalreporter.write_line(value)
