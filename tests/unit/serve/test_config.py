"""Wrong settings and addresses are errors before a model is loaded."""

import socket

import pytest

from pipeline.serve.config import load_serve
from pipeline.serve.server import listen


def test_an_address_that_is_taken_or_not_ours():
    with listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(ValueError, match=f"host=127.0.0.1 port={port}: Address already in use; .*port=8001"):
            listen("127.0.0.1", port)
    with pytest.raises(ValueError, match=r"host=192.0.2.1 port=0: .*must be an address of this machine"):
        listen("192.0.2.1", 0)
    with pytest.raises(ValueError, match=r"host=no.such.invalid is no address"):
        listen("no.such.invalid", 0)


def test_ipv6():
    try:
        listener = listen("::1", 0)
    except ValueError as error:
        pytest.skip(str(error))
    with listener:
        assert listener.family == socket.AF_INET6


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("run=''", "NAME is empty; give the name of a finished run"),
        ("host=''", "host is empty; give 127.0.0.1"),
        ("port=70000", "port=70000 is not one of 1 to 65535"),
        ("grace=-1", "grace=-1 must not be negative"),
        ("long=drop", "long='drop' is not one of split, truncate, skip, whole"),
        ("limits.seconds=0", "limits.seconds=0.0 must be more than 0"),
        ("limits.client_rate=-1", "limits.client_rate=-1.0 must not be negative"),
        ("batching.lines=0", "batching.lines=0 must be more than 0"),
        ("runtime=slurm", "runtime.launcher=slurm: a server's processes are of this machine"),
        ("limits.line=3", "limits.line does not exist; did you mean limits.lines"),
    ],
)
def test_settings_that_cannot_be(setting, message):
    with pytest.raises(ValueError, match=message.replace(".", r"\.")):
        load_serve(["run=demo", setting])
