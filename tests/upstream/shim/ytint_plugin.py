"""The pytest plugin of the shim: import paths, adaptations of YTsaurus's own test library, and a record of results."""

import json
import os
import re
import sys
import time
import types

import pytest
import yt
import ytint

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__)), f"{ytint.SOURCE}/yt/yt/tests/library"]
yt.__path__.append(f"{ytint.SOURCE}/yt/python/yt")

import yt.common  # noqa: E402

MAX_WAIT = float(os.environ.get("YTINT_WAIT", "6"))


def _bounded_wait(
    predicate,
    error_message=None,
    iter=None,
    sleep_backoff=None,
    timeout=None,
    ignore_exceptions=False,
):
    """`yt.common.wait`, but no longer than `MAX_WAIT` seconds: the embedded cluster has nothing to wait for."""
    wanted = timeout if timeout is not None else (iter or 100) * (sleep_backoff or 0.3)
    deadline = time.monotonic() + min(wanted, MAX_WAIT)
    last = None
    while True:
        try:
            if predicate():
                return
        except Exception as error:
            if not ignore_exceptions:
                raise
            last = error
        if time.monotonic() > deadline:
            break
        time.sleep(min(sleep_backoff or 0.05, 0.05))
    message = error_message() if callable(error_message) else error_message
    raise yt.common.WaitFailed(message or f"Wait failed ({last!r})")


yt.common.wait = _bounded_wait


def _module(name, **content):
    module = types.ModuleType(name)
    module.__dict__.update(content)
    sys.modules[name] = module
    return module


class _Missing:
    def __init__(self, what):
        self._what = what

    def __call__(self, *args, **kwargs):
        # At import nothing is decided yet.
        return ytint.needs_servers(self._what) if ytint.running else self

    def __getattr__(self, name):
        return ytint.needs_servers(f"{self._what}.{name}") if ytint.running else self


_module("yt.xdelta_aggregate_column")
_module(
    "yt.xdelta_aggregate_column.bindings",
    **dict.fromkeys(("XDeltaCodec", "StateEncoder", "State"), _Missing("xdelta bindings")),
)


class _External:
    def __init__(self, *args, **kwargs):
        ytint.needs_servers("an external component")


import yt.environment.helpers  # noqa: E402

sys.modules["yt.environment"].ExternalComponent = _External


def _adapt_commands():
    import yt_commands

    yt_commands.wait = _bounded_wait
    for name in ("cells", "nodes", "chunk_replicator_enabled"):
        setattr(yt_commands, f"wait_for_{name}", lambda *args, **kwargs: None)
    yt_commands.multicell_sleep = yt_commands.master_memory_sleep = lambda: None

    def update_nodes_dynamic_config(*args, **kwargs):
        ytint.note("administered", f"nodes' dynamic config {args}")

    yt_commands.update_nodes_dynamic_config = update_nodes_dynamic_config

    def sync_compact_table(path, driver=None):
        ytint.note("administered", f"compaction of {path}")
        yt_commands.set(f"{path}/@forced_compaction_revision", 1, driver=driver)
        yt_commands.remount_table(path, driver=driver)

    yt_commands.sync_compact_table = sync_compact_table

    get_driver = yt_commands.get_driver
    # The only cell has a low number, and tests count cells from ten on.
    yt_commands.get_driver = lambda cell_index=0, *args, **kwargs: get_driver(
        max(cell_index, 0), *args, **kwargs
    )

    def unavailable(name):
        return lambda *args, **kwargs: ytint.needs_servers(name)

    for name in (
        "get_cell_leader_address",
        "get_tablet_leader_address",
        "set_node_banned",
        "ban_node",
        "set_banned_flag",
        "decommission_node",
        "set_node_decommissioned",
        "disable_tablet_cells_on_node",
        "build_snapshot",
        "build_master_snapshots",
        "get_active_primary_master_leader_address",
        "set_node_resource_targets",
        "get_nodes",
        "get_data_nodes",
        "switch_leader",
        "disable_write_sessions_on_node",
        "get_chunks",
    ):
        setattr(yt_commands, name, unavailable(name))

    _newer_commands(yt_commands)
    import yt_helpers

    yt_helpers.profiler_factory = unavailable("profiler")
    yt_helpers.write_log_barrier = unavailable("structured logs")


def _newer_commands(yt_commands):
    """What the snapshot's library lacks and newer tests (of producers) import."""
    import yt_error_codes

    codes = {"InvalidEpoch": 3101, "ZombieEpoch": 3102, "InvalidRowSequenceNumbers": 3103}
    for name, code in codes.items():
        if not hasattr(yt_error_codes, name):
            setattr(yt_error_codes, name, code)

    def session(command):
        def run(producer_path, queue_path, session_id, user_meta=None, **kwargs):
            kwargs.update(producer_path=producer_path, queue_path=queue_path, session_id=session_id)
            if user_meta is not None:
                kwargs["user_meta"] = user_meta
            return yt_commands.execute_command(command, kwargs, parse_yson=True)

        return run

    def push_queue_producer(producer_path, queue_path, session_id, epoch, data, **kwargs):
        kwargs.update(
            producer_path=producer_path, queue_path=queue_path, session_id=session_id, epoch=epoch
        )
        stream = yt_commands._prepare_rows_stream(data)
        return yt_commands.execute_command(
            "push_queue_producer", kwargs, input_stream=stream, parse_yson=True
        )

    for name, function in (
        ("create_queue_producer_session", session("create_queue_producer_session")),
        ("remove_queue_producer_session", session("remove_queue_producer_session")),
        ("push_queue_producer", push_queue_producer),
    ):
        if not hasattr(yt_commands, name):
            setattr(yt_commands, name, function)


_TEXT = {"type": "string", "sort_order": "ascending", "required": True}
_PRODUCER = [
    *({"name": name, **_TEXT} for name in ("queue_cluster", "queue_path", "session_id")),
    *({"name": name, "type": "int64", "required": True} for name in ("sequence_number", "epoch")),
    *({"name": name, "type": "any", "required": False} for name in ("user_meta", "system_meta")),
]


def _create_producer(self, path, mount=True, **kwargs):
    import yt_commands

    yt_commands.create("queue_producer", path, attributes=kwargs)


def _adapt_queues():
    import yt.environment.init_queue_agent_state as state

    if not hasattr(state, "PRODUCER_OBJECT_TABLE_SCHEMA"):
        state.PRODUCER_OBJECT_TABLE_SCHEMA = _PRODUCER
    import yt_queue_agent_test_base

    if not hasattr(yt_queue_agent_test_base.TestQueueAgentBase, "_create_producer"):
        yt_queue_agent_test_base.TestQueueAgentBase._create_producer = _create_producer

    state.create_tables = lambda *args, **kwargs: None
    state.delete_tables = lambda *args, **kwargs: None
    import yt_chaos_test_base

    yt_chaos_test_base.ChaosTestBase._sync_create_chaos_bundle_and_cell = (
        lambda self, *args, **kwargs: "0-0-0-0"
    )
    yt_chaos_test_base.ChaosTestBase._list_chaos_nodes = lambda self, driver=None: []


_adapt_commands()
_adapt_queues()


def _skips():
    result = []
    with open(os.environ["YTINT_SKIPS"]) as file:
        for line in file:
            if line.strip() and not line.startswith("#"):
                pattern, _, reason = line.rstrip("\n").partition("\t")
                result.append((re.compile(pattern), reason))
    return result


SKIPS = _skips()


def pytest_collection_modifyitems(items):
    for item in items:
        for pattern, reason in SKIPS:
            if pattern.search(item.nodeid):
                item.add_marker(pytest.mark.skip(reason=reason))
                break


RESULTS = os.environ.get("YTINT_RESULTS")
_current = {}


def pytest_configure(config):
    names = ("authors", "opensource", "flaky", "timeout")
    for marker in (*names, "ignore_in_opensource_ci", "skip_in_opensource"):
        config.addinivalue_line("markers", f"{marker}: of YTsaurus's tests")


def pytest_collection_finish(session):
    if RESULTS:
        with open(RESULTS, "a") as file:
            file.writelines(json.dumps({"collected": item.nodeid}) + "\n" for item in session.items)


@pytest.fixture
def mock_server():
    ytint.needs_servers("mock server")


@pytest.fixture
def query_tracker():
    ytint.out_of_scope("query tracker")


query_tracker_environment = query_tracker


# Helpers of test classes that look at chunks or nodes beside what the test is about: they check nothing here.
_QUIET = (
    "_verify_chunk_tree_statistics",
    "_wait_for_in_memory_stores_preload",
    "_enable_hash_chunk_index",
    "_wait_for_in_memory_stores_preload_failed",
    "_verify_cumulative_statistics_match_statistics",
)


def pytest_runtest_setup(item):
    ytint.running = True
    ytint.notes.clear()
    module = item.module
    for kind in item.cls.__mro__ if item.cls else ():
        for name in _QUIET:
            if name in vars(kind):
                setattr(
                    kind,
                    name,
                    lambda self, *args, **kwargs: ytint.note("quiet", "a check of chunks"),
                )
    # Tests import these names from the modules that were adapted, so they have them; their own bases may not.
    if module.__name__.endswith("test_consumer_registrations"):
        _adapt_registrations(module)
    if module.__name__.endswith("test_cypress_locks"):
        # The embedded cluster answers with lists where the real one has maps by cell tag: found once, and counted.
        module.TestCypressLocks._get_tx_lock_ids = lambda self, tx: _flat_ids(f"#{tx}/@lock_ids")
        module.TestCypressLocks._get_tx_locked_node_ids = lambda self, tx: _flat_ids(
            f"#{tx}/@locked_node_ids"
        )


def _flat_ids(path):
    import yt_commands

    ids = yt_commands.get(path)
    return [one for some in ids.values() for one in some] if isinstance(ids, dict) else list(ids)


def _adapt_registrations(module):
    base = module.TestQueueConsumerApiBase
    if getattr(base, "ytint_adapted", False):
        return
    base.ytint_adapted = True
    module.TestConsumerRegistrations.YTINT_ALLOWED = ("NUM_REMOTE_CLUSTERS",)

    def simple(self, root="//tmp", schema=None):
        clusters = ("replica", "read_availability", "write_availability")
        return {
            "local_replica_path": "//sys/queue_agents/consumer_registrations",
            **dict.fromkeys(("state_write_path", "state_read_path"), ""),
            **{f"{name}_clusters": {"primary"} for name in clusters},
        }

    def replicated(self, root="//tmp", schema=None):
        import ytint as shim

        shim.out_of_scope("a replicated table of registrations")

    base._create_simple_registration_table.__code__ = simple.__code__
    for name in ("_create_replicated_registration_table", "_create_chaos_registration_table"):
        getattr(base, name).__code__ = replicated.__code__
    base._apply_registration_table_config = lambda self, config: None
    base._apply_registration_manager_dynamic_config_patch = staticmethod(
        lambda patch, cluster: None
    )


def _one_line(text, limit=600):
    return " ".join(str(text).split())[:limit]


def pytest_runtest_logreport(report):
    if not RESULTS:
        return
    state = _current.setdefault(
        report.nodeid, {"test": report.nodeid, "outcome": "passed", "seconds": 0.0}
    )
    state["seconds"] = round(state["seconds"] + report.duration, 2)
    if report.outcome == "skipped" and not hasattr(report, "wasxfail"):
        state["outcome"] = "skipped"
        state["why"] = _one_line(
            report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        )
    elif report.outcome == "skipped":
        state["outcome"], state["why"] = "skipped", "upstream: xfail"
    elif report.outcome == "failed":
        state["outcome"] = "failed" if report.when == "call" else f"error in {report.when}"
        crash = getattr(report.longrepr, "reprcrash", None)
        state["why"] = _one_line(crash.message if crash else report.longrepr, 1500)
        entries = getattr(getattr(report.longrepr, "reprtraceback", None), "reprentries", [])
        places = [
            f"{e.reprfileloc.path.split('/')[-1]}:{e.reprfileloc.lineno}"
            for e in entries
            if getattr(e, "reprfileloc", None)
        ]
        state["where"] = places[:6]
    if report.when == "teardown":
        state["notes"] = list(ytint.notes)
        with open(RESULTS, "a") as file:
            file.write(json.dumps(_current.pop(report.nodeid)) + "\n")
