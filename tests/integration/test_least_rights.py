"""The rights of docs/security.md are enough in every mode; each that is missing is named by the error."""

import uuid

import pytest
from pyspark.errors import PySparkException

from tests.tiers import first_of
from yt_exactly_once import Event, cli
from yt_exactly_once.commit.tally import SentBy

MODES = ["transactional", "at-least-once", "idempotent"]
REVOKED = (("consumer", "read"), ("target", "read"), ("target", "write"), ("ledger", "write"))
BESIDES = {
    "transactional": (("queue", "read"), ("consumer", "write"), ("ledger", "read")),
    "at-least-once": (("consumer", "write"), ("ledger", "read")),
    "idempotent": (("producer", "read"), ("producer", "write")),
}
"""What a missing right does, seen in one mode or another: a start of a query takes its time."""


class Robot:
    """A user with the rights of the documentation, and what takes them away."""

    def __init__(self, flow, mode):
        self.flow, self.client = flow, flow.client
        self.name = f"robot-{uuid.uuid4().hex[:8]}"
        self.client.create("user", attributes={"name": self.name})
        ledger = ["create-ledger", flow.target, "--mode", mode, "--writer", self.name, "--json"]
        assert cli.main([*ledger, "--proxy", flow.cluster.proxy_urls[0]]) == 0
        self.paths = {
            "queue": flow.queue.path,
            "consumer": flow.consumer,
            "target": flow.target,
            "ledger": flow.ledger,
            "producer": f"{flow.target}_producer",
        }
        for name in ("queue", "consumer", "target"):
            self.client.set(f"{self.paths[name]}/@inherit_acl", False)
            self.give(name, *(("read",) if name == "queue" else ("read", "write")))
        flow.token = self.client.issue_token(self.name)

    def give(self, name, *permissions):
        """Let the user have these permissions on an object, and nobody else any."""
        acl = [{"action": "allow", "subjects": [self.name], "permissions": list(permissions)}]
        self.client.set(f"{self.paths[name]}/@acl", acl if permissions else [])

    def take(self, name, permission):
        """Leave the user the others of the object's permissions."""
        self.give(
            name, *{"read", "write"} - {permission} - ({"write"} if name == "queue" else set())
        )

    def restore(self, name):
        self.give(name, *(("read",) if name == "queue" else ("read", "write")))

    def assert_named(self, text, name, permission):
        """The error has the right, the user, the object and the command that grants it."""
        entry = f"{{action=allow;subjects=[{self.name}];permissions=[{permission}]}}"
        assert f'user "{self.name}": "{permission}" permission' in text
        assert f"yt set '{self.paths[name]}/@acl/end' '{entry}'" in text

    def assert_complete(self, mode):
        """A run with all rights ends exactly; at-least-once may have rows of failed runs besides."""
        flow = self.flow
        flow.run(mode=mode)
        if mode == "at-least-once":
            assert set(flow.found()) == set(flow.query.must_hold(flow.queue, 10, is_sorted=False))
            assert flow.queue.stored(flow.consumer) == flow.queue.ends()
        else:
            flow.assert_exact()


@pytest.fixture
def robot(stream, request):
    return Robot(stream(rows=20, rows_per_partition=10), request.param)


@pytest.mark.parametrize(
    ("robot", "mode"), first_of([(mode, mode) for mode in MODES]), indirect=["robot"]
)
def test_each_missing_right_is_named_and_all_are_enough(robot, mode):
    """The query stops with it before it writes anything; with all of them it is exact."""
    for name, permission in (*REVOKED, *BESIDES[mode]):
        robot.take(name, permission)
        # The source may already be refused when it is loaded.
        with pytest.raises(PySparkException, match="AccessError") as caught:
            robot.flow.run(mode=mode)
        robot.assert_named(str(caught.value), name, permission)
        robot.restore(name)
    robot.assert_complete(mode)
    if mode == "transactional":
        # Tasks of a shuffle claim their partitions in a table of their own.
        robot.flow.queue.append(10, 0)
        robot.flow.change = lambda frame: frame.repartition(2)
        heard = robot.flow.run(sent_by="tasks")
        assert heard.of(Event.BATCH_COMMITTED)[-1]["sent_by"] == SentBy.TASKS
        robot.flow.assert_exact()
