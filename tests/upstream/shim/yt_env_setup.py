"""Stands in for YTsaurus's `yt_env_setup`: `YTEnvSetup` over one embedded cluster per test class.

Names and defaults of the settings are those of the original, so that test classes can read and override them. What
they mean here: several masters, clusters or portals skip the class; all other settings change nothing.
"""

import ast
import contextlib
import functools
import os

import decorator
import pytest
import yt_commands
import ytint
from yt.common import YtError, YtResponseError, update_inplace, wait  # noqa: F401
from yt.environment.default_config import get_dynamic_master_config

from yt_exactly_once.local import LocalCluster

SCHEDULERS_SERVICE = "schedulers"
CONTROLLER_AGENTS_SERVICE = "controller_agents"
NODES_SERVICE = "nodes"
CHAOS_NODES_SERVICE = "chaos_nodes"
MASTERS_SERVICE = "masters"
QUEUE_AGENTS_SERVICE = "queue_agents"
RPC_PROXIES_SERVICE = "rpc_proxies"
HTTP_PROXIES_SERVICE = "http_proxies"

_KEPT = {
    "//sys/users": {"root", "guest"},
    "//sys/groups": {"everyone", "superusers", "users"},
    "//sys/accounts": {"default", "sys", "tmp"},
    "//sys/tablet_cell_bundles": {"default"},
    "//sys/tablet_cells": {"1-1-102bc-1"},
}
_MANAGERS = (
    *(
        f"{name}_manager"
        for name in ("tablet", "security", "cypress", "chunk", "transaction", "graft")
    ),
    *(
        f"{name}_manager"
        for name in ("multicell", "object", "chaos", "hydra", "table", "incumbent")
    ),
    *(f"{name}_manager" for name in ("sequoia", "scheduler_pool", "journal")),
    *("chunk_service", "object_service", "node_tracker", "cell_master", "transaction_supervisor"),
)
_ROOTS = {"home", "sys", "tmp"}


def Restarter(env, components, *args, **kwargs):  # noqa: N802 - a class there
    ytint.needs_servers(f"restart of {components}")


def find_ut_file(file_name):
    ytint.out_of_scope("UDFs in bitcode")


def search_binary_path(name):
    ytint.needs_servers(f"binary {name}")


def is_asan_build():
    return False


is_msan_build = is_debug_build = is_asan_build


def get_sanitizer_type():
    return None


def skip_if_porto(func):
    return func


def get_custom_rootfs_delta_node_config():
    return {}


def skip_if_rpc_driver_backend(func):
    def wrapper(func, self, *args, **kwargs):
        if self.DRIVER_BACKEND == "rpc":
            pytest.skip(f"{ytint.SCOPE}: upstream skips it with the RPC driver")
        return func(self, *args, **kwargs)

    return decorator.decorate(func, wrapper)


def parametrize_external(func):
    index = decorator.getfullargspec(func).args.index("external")

    def wrapper(func, self, *args, **kwargs):
        if args[index - 1] is True:
            ytint.needs_servers("several master cells")
        return func(self, *args, **kwargs)

    return pytest.mark.parametrize("external", [False, True])(decorator.decorate(func, wrapper))


@functools.total_ordering
class _Version:
    abi = (99, 9)

    def __lt__(self, other):
        return False

    def __eq__(self, other):
        return False


class _YtConfig:
    master_count = 1
    secondary_cell_count = 0


class Env:
    """The embedded cluster, under the names of `YTInstance` that tests use."""

    yt_config = _YtConfig()
    _cluster_name = id = "primary"

    def __init__(self):
        self.cluster = LocalCluster(trim_every=0.1, features=ytint.FEATURES).start()
        url, rpc = self.cluster.proxy_urls[0], self.cluster.rpc_addresses
        base = {"http_url": url, "format_defaults": {}, "enable_internal_commands": True}
        rpc_config = {"connection_type": "rpc", "http_url": url, "proxy_addresses": rpc}
        updates = ("successful_update", "failed_update", "access")
        no_cache = {f"expire_after_{name}_time": 0 for name in updates} | {"refresh_time": 0}
        rpc_config["table_mount_cache"] = no_cache
        self.driver_configs = {"http": base, "rpc": rpc_config}
        self._cluster_configuration = {"queue_agent": [{}]}

    def create_native_client(self, cluster_name="primary"):
        return self.cluster.client()

    create_client = create_native_client

    def get_proxy_address(self):
        return self.cluster.proxy_urls[0].removeprefix("http://")

    get_http_proxy_address = get_proxy_address

    def get_rpc_proxy_addresses(self):
        return self.cluster.rpc_addresses

    def get_component_version(self, component):
        return _Version()

    def get_cluster_configuration(self):
        return {"cluster_connection": {}}

    def stop(self):
        self.cluster.stop()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        ytint.needs_servers(f"Env.{name}")


def _settings():
    """Return the settings of the original with their defaults; test classes read and override them."""
    with open(f"{ytint.SOURCE}/yt/yt/tests/library/yt_env_setup.py") as file:
        (original,) = (
            each
            for each in ast.parse(file.read()).body
            if getattr(each, "name", "") == "YTEnvSetup"
        )
    found = {}
    for each in original.body:
        if isinstance(each, ast.Assign):
            with contextlib.suppress(ValueError):
                found[each.targets[0].id] = ast.literal_eval(each.value)
    return found


class YTEnvSetup(type("Settings", (), _settings())):
    # Classes whose tests do not need what they ask for (see `adapt`).
    YTINT_ALLOWED = ()

    Env = None

    @classmethod
    def is_multicell(cls):
        return cls.NUM_SECONDARY_MASTER_CELLS > 0

    @classmethod
    def get_num_secondary_master_cells(cls):
        return cls.NUM_SECONDARY_MASTER_CELLS

    @classmethod
    def get_param(cls, name, cluster_index):
        return getattr(cls, name)

    @classmethod
    def get_cluster_name(cls, cluster_index):
        return "primary" if cluster_index == 0 else f"remote_{cluster_index - 1}"

    @classmethod
    def get_cluster_names(cls):
        return ["primary"]

    @classmethod
    def _reason(cls):
        if (cls.NUM_SECONDARY_MASTER_CELLS or cls.ENABLE_TMP_PORTAL) and cls._repeats():
            return f"{ytint.SERVERS}: several master cells (the class repeats its base)"
        if cls.USE_SEQUOIA or cls.NUM_CYPRESS_PROXIES:
            return f"{ytint.SERVERS}: Sequoia"
        if cls.NUM_REMOTE_CLUSTERS and "NUM_REMOTE_CLUSTERS" not in cls.YTINT_ALLOWED:
            return f"{ytint.SCOPE}: several clusters"
        if cls.NUM_QUEUE_AGENTS > 1:
            return f"{ytint.SERVERS}: several queue agents"
        only = os.environ.get("YTINT_BACKEND")
        if only and only != cls._backend():
            return f"{ytint.SCOPE}: not this backend"
        return None

    @classmethod
    def _repeats(cls):
        """Tell whether the class runs the tests of one for a single master cell again."""
        return any(
            not getattr(base, "NUM_SECONDARY_MASTER_CELLS", 1)
            and any(name.startswith("test_") for name in vars(base))
            for base in cls.__mro__[1:]
        )

    @classmethod
    def _backend(cls):
        wanted = os.environ.get("YTINT_DRIVER") or cls.DRIVER_BACKEND
        return "rpc" if wanted == "rpc" else "http"

    @classmethod
    def setup_class(cls, test_name=None, run_id=None):
        reason = cls._reason()
        if reason:
            pytest.skip(reason)
        cls._start()

    @classmethod
    def _start(cls):
        cls.Env = Env()
        cls.path_to_run = str(cls.Env.cluster.data_dir)
        cls.remote_envs, cls.ground_envs, cls.combined_envs = [], [], [cls.Env]
        yt_commands.is_multicell = False
        yt_commands.path_to_run_tests = cls.path_to_run
        drivers = {}
        for version in (3, 4):
            config = {**cls.Env.driver_configs[cls._backend()], "api_version": version}
            drivers[version] = yt_commands.Driver(config=config)
        yt_commands._clusters_drivers.clear()
        yt_commands._clusters_drivers["primary"] = [drivers]
        cls._plain = yt_commands.Driver(config={**cls.Env.driver_configs["http"], "api_version": 4})
        # Where tests and `_restore_globals` write; nothing reads them.
        nothing = {"attributes": {"value": {}}, "ignore_existing": True}
        cls._ask("create", type="document", path="//sys/queue_agents/config", **nothing)
        config = get_dynamic_master_config()
        for manager in _MANAGERS:
            config.setdefault(manager, {})
        config["tablet_manager"].setdefault("tablet_cell_balancer", {})
        config["tablet_manager"].setdefault("tablet_balancer", {})
        config["enable_descending_sort_order"] = True
        update_inplace(config, cls.DELTA_DYNAMIC_MASTER_CONFIG)
        cls._put("//sys/@config", config)
        cls._put("//sys/@cluster_name", "primary")
        cls._put("//sys/@primary_cell_tag", 1)
        cls._put("//sys/tablet_cell_bundles/default/@dynamic_options", {})
        cls._put("//sys/tablet_cell_bundles/default/@tablet_balancer_config", {})
        limits = {"tablet_count": 10_000, "tablet_static_memory": 1 << 30, "node_count": 100_000}
        limits |= {"chunk_count": 100_000, "disk_space_per_medium": {"default": 1 << 40}}
        for account in ("tmp", "sys", "default"):
            cls._put(f"//sys/accounts/{account}/@resource_limits", limits)

    @classmethod
    def _ask(cls, command, **parameters):
        return ytint.ask(cls._plain, command, **parameters)

    @classmethod
    def _put(cls, path, value):
        from yt import yson

        given = {"path": path, "input_format": yson.to_yson_type("yson")}
        error = cls._plain._http("PUT", "set", given, yson.dumps(value), None)[0]
        if error:
            raise YtResponseError(error)

    @classmethod
    def teardown_class(cls):
        if cls.Env is not None:
            yt_commands.terminate_drivers()
            cls.Env.stop()
            cls.Env = None

    def setup_method(self, method):
        type(self)._clean()

    def teardown_method(self, method):
        yt_commands._zombie_responses[:] = []

    @classmethod
    def _clean(cls):
        try:
            cls._sweep()
        except Exception:
            cls.teardown_class()
            cls._start()
            cls._sweep()

    @classmethod
    def _sweep(cls):
        for tx in cls._ask("list", path="//sys/transactions"):
            with contextlib.suppress(YtError):
                cls._ask("abort_transaction", transaction_id=str(tx))
        for r in cls._ask("list_queue_consumer_registrations") or []:
            paths = {name: str(r[name]) for name in ("queue_path", "consumer_path")}
            cls._ask("unregister_queue_consumer", **paths)
        for name in cls._ask("list", path="/"):
            if str(name) not in _ROOTS:
                cls._ask("remove", path=f"//{name}", force=True)
        cls._ask("remove", path="//tmp", force=True)
        rights = ["read", "write", "remove"]
        users = {"action": "allow", "permissions": rights, "subjects": ["users"]}
        attributes = {"account": "tmp", "acl": [users], "opaque": True}
        cls._ask("create", type="map_node", path="//tmp", attributes=attributes)
        for folder, kept in _KEPT.items():
            for name in cls._ask("list", path=folder):
                if str(name) not in kept:
                    cls._ask("remove", path=f"{folder}/{name}", force=True)
