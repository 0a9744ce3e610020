import logging
import time

import h11

from pipeline.serve.log import SeldomComplaints


def test_complaints_about_clients_are_seldom_and_counted_and_errors_all_pass():
    seldom = SeldomComplaints(seconds=0.2)

    def passed(level, error=None):
        record = logging.LogRecord("uvicorn.error", level, "", 0, "Invalid", (), (type(error), error, None))
        return record.getMessage() if seldom.filter(record) else None

    assert [passed(logging.WARNING) for _ in range(3)] == ["Invalid", None, None]
    assert passed(logging.ERROR, h11.LocalProtocolError("too late")) is None
    assert [passed(logging.ERROR, ValueError("ours")) for _ in range(2)] == ["Invalid", "Invalid"]
    time.sleep(0.21)
    assert [passed(logging.WARNING) for _ in range(2)] == ["Invalid (3 complaints before it were left out)", None]
