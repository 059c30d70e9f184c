"""Hazards of real queues that a user may switch on, and the trimming step; in process."""

import random
from itertools import accumulate
from typing import Any

import pytest
from yt.yson import to_yson_type

from tests.in_process import Commands
from yt_exactly_once.local.cypress import tree, ypath
from yt_exactly_once.local.cypress.view import View
from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.queues import trimming

QUEUE, CONSUMER, PRODUCER = "//tmp/q", "//tmp/c", "//tmp/p"


class Queue(Commands):
    """A queue of two tablets, its consumers, and one session of a producer."""

    def trim(self) -> list[dict[str, Any]]:
        return trimming.trim_all(self.proxy.store)

    def set(self, name: str, value: Any) -> None:
        with self.proxy.store.write() as connection:
            view = View(connection)
            view.put_attribute(tree.reach(view, ypath.parse(QUEUE)).id, name, value)

    def append(self, count: int, tablet: int = 0, **named: Any) -> None:
        rows = [{"v": b"x", "$tablet_index": tablet}] * count
        self("insert_rows", rows, path=QUEUE, **named)

    def pull(self, offset: int = 0, tablet: int = 0) -> list[int]:
        rows = self("pull_queue", queue_path=QUEUE, offset=offset, partition_index=tablet)
        return [row["$row_index"] for row in rows]

    def total(self, tablet: int = 0) -> int:
        answer = self("get_tablet_infos", path=QUEUE, tablet_indexes=[tablet])
        total: int = answer["tablets"][0]["total_row_count"]
        return total

    def advance(self, offset: int, consumer: str = CONSUMER, tablet: int = 0) -> None:
        self(
            "advance_queue_consumer",
            consumer_path=consumer,
            queue_path=QUEUE,
            partition_index=tablet,
            new_offset=offset,
            client_side=True,
        )

    def register(self, consumer: str = CONSUMER, *, vital: bool = True, **more: Any) -> None:
        self("create", type="queue_consumer", path=consumer)
        self(
            "register_queue_consumer", queue_path=QUEUE, consumer_path=consumer, vital=vital, **more
        )

    def push(self, *numbers: int) -> Any:
        return self(
            "push_queue_producer",
            [{"v": b"x", "$sequence_number": number} for number in numbers],
            producer_path=PRODUCER,
            queue_path=QUEUE,
            session_id="s",
            epoch=0,
        )

    def open_session(self, **more: Any) -> Any:
        return self(
            "create_queue_producer_session",
            producer_path=PRODUCER,
            queue_path=QUEUE,
            session_id="s",
            **more,
        )


@pytest.fixture
def start(tmp_path):
    """Start a proxy with hazards; a queue of two tablets is there."""
    started = []

    def launch(**features: Any) -> Queue:
        run = Queue(tmp_path, **features)
        started.append(run)
        schema = [{"name": "v", "type": "string"}]
        run.table(QUEUE, schema, tablet_count=2, auto_trim_config={"enable": True})
        run("create", type="queue_producer", path=PRODUCER)
        return run

    yield launch
    for run in started:
        run.close()


def test_registration_lag_lets_a_fresh_registration_be_denied(start, wait):
    """Proxies of a real cluster learn of a registration a moment later, and of its removal too.

    `DoFindRegistration` in `ytlib/queue_client/registration_manager_new.cpp` asks a cache.
    """
    run = start(registration_lag_seconds=30)
    run.append(1)
    run.register()
    pull = {"consumer_path": CONSUMER, "queue_path": QUEUE, "partition_index": 0}
    with pytest.raises(YtError) as caught:
        run("pull_queue_consumer", **pull)
    assert caught.value.code == 901
    wait(31)
    assert len(run("pull_queue_consumer", **pull)) == 1
    run("unregister_queue_consumer", consumer_path=CONSUMER, queue_path=QUEUE)
    assert len(run("pull_queue_consumer", **pull)) == 1
    assert len(run("list_queue_consumer_registrations", queue_path=QUEUE)) == 1
    wait(31)
    with pytest.raises(YtError):
        run("pull_queue_consumer", **pull)


def test_visibility_delay_lets_committed_rows_appear_later(start, wait):
    """The commit is answered, the rows come when they come, numbered in the order of commits."""
    run = start(visibility_delay_seconds=30)
    run.append(2)
    run.append(1)
    assert run.total() == 0
    assert run.pull() == []
    wait(31)
    assert run.pull() == [0, 1, 2]
    assert run.total() == 3


def test_delayed_rows_survive_the_proxy(start, wait, tmp_path):
    """What was acknowledged is on disk, visible or not."""
    run = start(visibility_delay_seconds=30)
    run.append(2)
    again = Queue(tmp_path)
    wait(31)
    assert again.pull() == [0, 1]
    again.close()


def test_seed_makes_the_choice_of_tablets_repeatable(start):
    """The same seed, the same tablets."""
    run = start(random_tablet_seed=7)
    counts = []
    for _ in range(12):
        run("insert_rows", [{"v": b"x"}], path=QUEUE)
        counts.append(run.total(0))
    chooser = random.Random(7)
    assert counts == list(accumulate(chooser.choice([0, 1]) == 0 for _ in counts))


@pytest.mark.parametrize(
    ("regresses", "last", "none", "again"), [(True, 2, -1, 0), (False, 6, 6, 2)]
)
def test_all_skipped_push_may_move_the_session_back(start, regresses, last, none, again):
    """As servers of 2024 do, and so by default: afterwards old rows are accepted again."""
    run = start(**({} if regresses else {"producer_regress_on_skipped": False}))
    run.open_session()
    run.push(5, 6)
    assert run.push(1, 2) == {"last_sequence_number": last, "skipped_row_count": 2}
    assert run.push(5, 6)["skipped_row_count"] == again
    assert run.push() == {"last_sequence_number": none, "skipped_row_count": 0}
    assert run.push(5, 6)["skipped_row_count"] == again
    assert run.total(0) + run.total(1) == (6 if regresses else 2)


@pytest.mark.parametrize("remembers", [True, False])
def test_repeated_mutation_id_of_a_session_creation(start, remembers):
    """Newer servers answer a resent request with the same epoch, older ones raise it again."""
    run = start(producer_session_mutation_dedup=remembers)
    run.open_session(mutation_id="1-2-3-4")
    answer = run.open_session(mutation_id="1-2-3-4", retry=True)
    assert answer["epoch"] == (0 if remembers else 1)
    assert run.open_session(mutation_id="1-2-3-5")["epoch"] == answer["epoch"] + 1


def test_trim_follows_the_slowest_vital_consumer(start):
    """Others do not hold rows back, and partitions are trimmed apart."""
    run = start()
    run.append(10)
    run.append(4, tablet=1)
    run.register()
    run.register("//tmp/second")
    run.register("//tmp/bystander", vital=False)
    run.advance(6)
    assert run.trim() == [{"queue": QUEUE, "trimmed": {}}]
    run.advance(3, "//tmp/second")
    run.advance(4, tablet=1)
    assert run.trim() == [{"queue": QUEUE, "trimmed": {"0": 3}}]
    assert run.pull() == [3, 4, 5, 6, 7, 8, 9]
    assert run.pull(tablet=1) == [0, 1, 2, 3]


def test_trim_needs_consent_and_a_vital_consumer(start):
    """Without `auto_trim_config/enable`, or with nobody vital, nothing is lost."""
    run = start()
    run.append(3)
    run.register(vital=False)
    run.advance(3)
    run.trim()
    assert run.pull() == [0, 1, 2]
    run("register_queue_consumer", queue_path=QUEUE, consumer_path=CONSUMER, vital=True)
    run.set("auto_trim_config", {"enable": False})
    run.trim()
    assert run.pull() == [0, 1, 2]
    run.set("auto_trim_config", {"enable": True})
    run.trim()
    assert run.pull() == []


def test_trim_keeps_what_is_to_be_retained(start):
    """Retained rows and a retained lifetime hold rows that everybody has read."""
    run = start()
    run.append(10)
    run.register()
    run.advance(10)
    run.set("auto_trim_config", {"enable": True, "retained_rows": 4})
    run.trim()
    assert run.pull() == [6, 7, 8, 9]
    run.set("auto_trim_config", {"enable": True, "retained_lifetime_duration": 3_600_000})
    run.trim()
    assert run.pull() == [6, 7, 8, 9]


def test_vital_consumer_of_some_partitions_holds_the_others_back(start):
    """The queue agent does not look at the partitions of a registration."""
    run = start()
    run.append(2)
    run.append(2, tablet=1)
    run.register()
    run.register("//tmp/second", partitions=[1])
    for consumer in (CONSUMER, "//tmp/second"):
        run.advance(2, consumer, tablet=1)
    run.advance(2)
    assert run.trim() == [{"queue": QUEUE, "trimmed": {"1": 2}}]
    assert run.pull() == [0, 1]


@pytest.mark.parametrize("partitions", [None, [1]])
def test_unmounted_vital_consumer_holds_everything(start, partitions):
    """Nobody can tell what it has read, nor when it is gone; once it is mounted again, its rows go."""
    run = start()
    run.append(2)
    run.register()
    run.register("//tmp/second", partitions=partitions)
    for consumer in (CONSUMER, "//tmp/second"):
        run.advance(2, consumer)
    run("unmount_table", path="//tmp/second")
    assert run.trim() == [{"queue": QUEUE, "trimmed": {}}]
    assert run.pull() == [0, 1]
    run("mount_table", path="//tmp/second", freeze=True)
    assert run.trim() == [{"queue": QUEUE, "trimmed": {"0": 2}}]
    assert run.pull() == []
    run.append(1)
    run.advance(3)
    run("remove", path="//tmp/second")
    run.trim()
    assert run.pull() == [2]


def test_registration_of_a_removed_queue_does_not_stop_the_others(start):
    """The step reports what it could not do and goes on."""
    run = start()
    run.append(1)
    run.register()
    run.advance(1)
    run("create", type="table", path="//tmp/gone")
    run("register_queue_consumer", queue_path="//tmp/gone", consumer_path=CONSUMER, vital=True)
    run("remove", path="//tmp/gone")
    gone, trimmed = run.trim()
    assert gone["queue"] == "//tmp/gone"
    assert gone["error"]["inner_errors"][0]["code"] == 500
    assert trimmed == {"queue": QUEUE, "trimmed": {"0": 1}}


def test_forced_unmount_loses_rows_that_have_not_appeared(start, wait):
    """They were committed, and a forced unmount asks nobody; nothing flushes them before."""
    run = start(visibility_delay_seconds=30)
    run.set("mount_config", {"dynamic_store_auto_flush_period": 1000})
    run("remount_table", path=QUEUE)
    run.append(2)
    run.append(1, tablet=1)
    wait(3)
    run("unmount_table", path=QUEUE, force=True, first_tablet_index=0, last_tablet_index=0)
    run("mount_table", path=QUEUE)
    wait(31)
    assert (run.pull(), run.pull(tablet=1)) == ([], [0])


def test_old_rows_survive_a_forced_unmount(start, wait):
    """After the period of the automatic flush they are on disk."""
    run = start()
    run.set("mount_config", {"dynamic_store_auto_flush_period": 1000})
    run("remount_table", path=QUEUE)
    run.append(2)
    wait(3)
    run("unmount_table", path=QUEUE, force=True)
    run("mount_table", path=QUEUE)
    assert run.pull() == [0, 1]


@pytest.mark.parametrize("action", ["unmount_table", "freeze_table"])
def test_committed_rows_appear_before_their_tablet_changes(start, action):
    """An orderly unmount waits for them, so that a reshard cannot take their tablet away."""
    run = start(visibility_delay_seconds=30)
    run.append(2)
    run(action, path=QUEUE)
    run("freeze_table" if action == "freeze_table" else "mount_table", path=QUEUE)
    assert run.pull() == [0, 1]


def test_rows_appear_when_a_cluster_starts_without_the_delay(start, tmp_path):
    """Later rows come after them."""
    start(visibility_delay_seconds=30).append(2)
    run = Queue(tmp_path)
    run.append(1)
    assert run.pull() == [0, 1, 2]
    run.close()


def test_rows_of_a_longer_delay_stay_in_front(start, wait, tmp_path):
    """A cluster that starts with a shorter delay neither hides rows again nor numbers them twice."""
    start(visibility_delay_seconds=60).append(2)
    run = Queue(tmp_path, visibility_delay_seconds=1)
    run.append(1)
    wait(5)
    assert run.pull() == []
    wait(70)
    assert run.pull() == [0, 1, 2]
    run.close()


@pytest.mark.parametrize(("counts_trimmed", "found"), [(False, [2, 3]), (True, [2])])
def test_numbers_of_chunks_after_a_trim(start, counts_trimmed, found):
    """Today chunk 0 is the first that is left; in servers of 2023 numbers stay.

    YTsaurus's own `test_ordered_dynamic_tables.py`, at commit 13d93114.
    """
    run = start(chunk_index_counts_trimmed=counts_trimmed)
    for index in range(5):
        run("insert_rows", [{"v": str(index), "$tablet_index": 0}], path=QUEUE)
        run("freeze_table", path=QUEUE)
        run("unfreeze_table", path=QUEUE)
    run("trim_rows", path=QUEUE, tablet_index=0, trimmed_row_count=2)
    limits = {"lower_limit": {"chunk_index": 0}, "upper_limit": {"chunk_index": 2 + counts_trimmed}}
    path = to_yson_type(QUEUE, {"ranges": [limits]})
    assert [int(row["v"]) for row in run("read_table", path=path)] == found


def test_list_of_all_registrations_may_be_refused(start):
    """Newer servers can be told to.

    `ListRegistrations` in `ytlib/queue_client/registration_manager_base.cpp`.
    """
    run = start(list_all_registrations=False)
    run.register()
    assert len(run("list_queue_consumer_registrations", queue_path=QUEUE)) == 1
    with pytest.raises(YtError, match="Listing all registrations is disabled"):
        run("list_queue_consumer_registrations")
