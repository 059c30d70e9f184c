"""What happens to requests and processes."""

from enum import StrEnum
from typing import NamedTuple


class CrashedError(BaseException):
    """The process is dead: no handler of `Exception` sees this, and no request is executed."""


class TaskDiedError(Exception):
    """The executor is dead; Spark starts the task again."""


class Request(StrEnum):
    """Requests at which something may happen."""

    BEGIN = "begin"
    COMMIT = "commit"
    INSERT = "insert"
    SESSION = "session"
    PUSH = "push"
    CREATE = "create"


class How(StrEnum):
    """What may happen at a request."""

    CRASH_BEFORE = "the driver dies before"
    CRASH_AFTER = "the driver dies after"
    LOST_REQUEST = "the request is lost"
    LOST_ANSWER = "the answer is lost"
    REFUSED = "the cluster refuses the request, and the processes live on"
    OUTAGE = "the cluster answers nothing from then on, until the next run"
    TASK_DIES_BEFORE = "the task dies before"
    TASK_DIES_AFTER = "the task dies after"


class Death(NamedTuple):
    """What happens at one request.

    Attributes:
        request: which kind of request.
        number: which one of its kind in the run, from 0.
        how: what happens; the death of a task is the driver's where no task runs.
    """

    request: Request
    number: int
    how: How
