"""A pytest plugin: says of each test, as one JSON line on the port "results", that it began
and how it ended, so that a machine that hangs or dies does not take the results with it."""

import json

PORT = "/dev/virtio-ports/results"


class Report:
    def __init__(self, port):
        self.port = port

    def say(self, **fields):
        self.port.write(json.dumps(fields).encode() + b"\n")

    def pytest_collection_finish(self, session):
        self.say(kind="planned", tests=[item.nodeid for item in session.items])

    def pytest_runtest_logstart(self, nodeid):
        self.say(kind="begun", test=nodeid)

    def pytest_runtest_logreport(self, report):
        # One line for the test itself, and one for a fixture that failed before or after.
        if report.when == "call" or report.outcome != "passed":
            self.say(kind="outcome", test=report.nodeid, when=report.when,
                     outcome=report.outcome, seconds=round(report.duration, 2))


def pytest_configure(config):
    config.addinivalue_line("markers", "short: in a short run, too")
    config.addinivalue_line("markers", "long: in a long run only")
    config.pluginmanager.register(Report(open(PORT, "wb", buffering=0)), "cloister-report")
