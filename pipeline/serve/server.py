"""The server of `make serve`: start, load the model, and end in order."""

import errno
import logging
import signal
import socket
import threading

import uvicorn
from starlette.types import ASGIApp

from pipeline.config import ROOT
from pipeline.dag.store import Store
from pipeline.decode.job.workers import TranslatorPool
from pipeline.finished_run import FinishedRun
from pipeline.serve.app import Service, create_app
from pipeline.serve.batching import Batcher
from pipeline.serve.clients import for_each_client
from pipeline.serve.config import LimitsConfig, ServeConfig
from pipeline.serve.connection import connections
from pipeline.serve.hosts import for_its_hosts
from pipeline.serve.log import SeldomComplaints

logger = logging.getLogger(__name__)

_seldom = SeldomComplaints()
_BACKLOG = 256  # connections that the system keeps waiting, and that one turn of the event loop accepts


def serve(config: ServeConfig) -> None:
    """Translate for clients until a signal comes, then finish their requests within the grace.

    Raises ValueError before a model is loaded, if the address is taken or the run cannot be used. Raises the error that
    kept the model from being loaded.
    """
    store, runs = Store(ROOT / config.runtime.artifacts), ROOT / config.runtime.runs
    run = FinishedRun.open(config.run, runs=runs, store=store).pruned(config.experts)
    decode = run.decode_with(config.decode, config.runtime.device)
    run.check_cut(config.runtime, decode)
    run = run.with_ensemble(decode, config.runtime, runs=runs, store=store)
    listener = listen(config.host, config.port)
    with listener, TranslatorPool(run.spec(decode, long=config.long), config.runtime) as pool:
        batcher = Batcher(pool, config.batching, workers=pool.num_replicas, waiting=config.limits.waiting)
        service = Service(run=run, decode=decode, limits=config.limits, batcher=batcher)
        app = for_its_hosts(create_app(service), listener)
        server = web_server(app, grace=config.grace, limits=config.limits)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):  # uvicorn sets its own handlers only later
            signal.signal(number, server.handle_exit)
        failed: list[Exception] = []
        waiting = threading.Thread(target=_await_model, args=(pool, service, server, failed, address(listener)))
        logger.info("loading %s for %s", ", ".join(pair.name for pair in run.pairs), address(listener))
        waiting.start()
        server.run(sockets=[listener])
    waiting.join()
    if failed:
        raise failed[0]


def web_server(app: ASGIApp, *, grace: int, limits: LimitsConfig) -> uvicorn.Server:
    """Return the HTTP server. It logs errors, few complaints about clients, and no text of a request."""
    logging.getLogger("uvicorn.error").addFilter(_seldom)  # it is one object, so a second call adds nothing
    return uvicorn.Server(
        uvicorn.Config(
            for_each_client(app, limits),
            http=connections(limits),
            proxy_headers=False,  # any client could send such a header and claim another address
            backlog=_BACKLOG,
            ws="none",
            lifespan="off",
            log_config=None,
            log_level=logging.WARNING,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=grace,
        )
    )


def _await_model(
    pool: TranslatorPool, service: Service, server: uvicorn.Server, failed: list[Exception], url: str
) -> None:
    """Wait for the model. If it cannot be loaded, store the error and end the server."""
    try:
        pool.wait()
    except Exception as error:  # noqa: BLE001 - raised again by the thread that serves
        if not server.should_exit:
            failed.append(error)
            server.should_exit = True
    else:
        service.loaded = True
        logger.info("ready: %s", url)


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens for clients. Raises ValueError if the address cannot be used."""
    try:
        family, kind, protocol, _, location = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except socket.gaierror as error:
        raise ValueError(
            f"host={host} is no address of this machine ({error.strerror}); 127.0.0.1 is always one"
        ) from error
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(location)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        remedy = "end what listens there, or choose another, as port=8001 (port=0 takes one that is free)"
        if error.errno == errno.EADDRNOTAVAIL:
            remedy = "host must be an address of this machine; 127.0.0.1 is always one"
        raise ValueError(f"host={host} port={port}: {error.strerror}; {remedy}") from error
    return listener


def address(listener: socket.socket) -> str:
    host, port, *_ = listener.getsockname()
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
