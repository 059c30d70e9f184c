"""What the shim decides: which requests of a test only real servers answer, and how the rest is adapted.

Every reason for a skip begins with its class, which `report.py` counts:
`needs real servers`, `not in scope`, `lacks` (the embedded cluster says itself that it has no such thing).
"""

import json
import os
import re
import threading
import time

import pytest

SOURCE = os.environ["YTINT_SOURCE"]
FEATURES = json.loads(os.environ["YTINT_FEATURES"])
SERVERS, SCOPE, LACKS = "needs real servers", "not in scope", "lacks"
PASS_SECONDS = 0.25

notes = []  # Of the running test: what the shim saw, for the classes of failures.
running = False  # Whether a test runs; else modules are being imported.
_LOCK = threading.Lock()


def note(kind, text):
    with _LOCK:
        entry = [kind, str(text)[:200]]
        if entry not in notes:
            notes.append(entry)


def needs_servers(what):
    pytest.skip(f"{SERVERS}: {what}")


def out_of_scope(what):
    pytest.skip(f"{SCOPE}: {what}")


_SERVERS_ONLY = re.compile(
    r"//sys/(cluster_nodes|data_nodes|exec_nodes|tablet_nodes|chaos_nodes|primary_masters|secondary_masters"
    r"|http_proxies/[^/]+/|rpc_proxies|discovery_servers|chunks|chunk_lists|chunk_views|foreign_chunks|media|racks"
    r"|hosts|data_centers|ql_pools|cell_balancers|timestamp_providers|master_caches|lost_|missing_|overrep|underrep"
    r"|chunk_locations|tablet_actions|areas|cypress_shards|estimated_creation_time|object_reincarnator)"
    r"|/orchid\b|//sys/@(chunk|master|supports)"
)
_OUT_OF_SCOPE = re.compile(
    r"//sys/(operations|scheduler|controller_agents|pool_trees|pools|operations_archive|chaos_cell|replication_cards"
    r"|tablet_balancer|replicated_table_tracker|query_tracker|network_projects|access_control_object|zookeeper|sequoia"
    r"|scions|rootstocks|portal)"
)
_TYPES_OUT_OF_SCOPE = re.compile(
    "replicated_table|table_replica|chaos_|replication_card|replication_log|portal|rootstock|journal|hunk_storage"
    "|scheduler_pool|table_collocation|network_project|access_control|zookeeper|domestic_medium|s3_medium|rack|host$"
    "|data_center|http_proxy_role|rpc_proxy_role|secondary_index|area|ally"
)
_COMMANDS_OUT_OF_SCOPE = {
    "start_operation": "MapReduce",
    "start_op": "MapReduce",
    "list_operations": "MapReduce",
    "get_operation": "MapReduce",
    "start_query": "query tracker",
    "create_table_backup": "backups",
    "restore_table_backup": "backups",
    "explain_query": "explain_query",
    "externalize": "several masters",
    "internalize": "several masters",
    "read_journal": "journals",
    "write_journal": "journals",
    "balance_tablet_cells": "tablet balancer",
    "reshard_table_automatic": "tablet balancer",
    "alter_replication_card": "chaos",
}
_QUEUE_AGENT = "//sys/queue_agents/instances"
_MAPS_BY_ID = re.compile(r"^//sys/tablets/([0-9a-f]+-[0-9a-f]+-[0-9a-f]+-[0-9a-f]+)")
_SWALLOWED = re.compile(
    r"//sys/(chaos_cell_bundles/c/@metadata_cell_id|clusters|http_proxies/[^/]+/@role$)"
)


def intercept(driver, request):
    """Return a maker of the answer, or `None` to ask the cluster; or end the test as skipped."""
    command, parameters = request.command_name, request.parameters
    if command in _COMMANDS_OUT_OF_SCOPE:
        out_of_scope(f"{_COMMANDS_OUT_OF_SCOPE[command]} ({command})")
    if command == "execute_batch":
        for item in parameters.get("requests", []):
            _check(str(item.get("command")), item.get("parameters", {}))
        return None
    path = str(parameters.get("path", ""))
    moved = _MAPS_BY_ID.sub(r"#\1", path)
    if moved != path:
        # The embedded cluster has no such map; it is a gap of its own, and the test is about something else.
        note("rewritten", path)
        from yt.yson import to_yson_type

        parameters["path"] = to_yson_type(
            moved, attributes=getattr(parameters["path"], "attributes", {})
        )
        path = moved
    attributes = parameters.get("attributes")
    if command == "create" and isinstance(attributes, dict) and attributes.get("external") is False:
        # Refused for static tables: a fault of its own, and it says nothing where there is one master cell.
        note("rewritten", "external")
        parameters["attributes"] = {
            name: value for name, value in attributes.items() if name != "external"
        }
    if path.startswith(_QUEUE_AGENT):
        return lambda: _queue_agent(driver, path, command)
    if path.startswith("//sys/discovery_servers") and command == "list":
        return list
    if command == "set" and _SWALLOWED.match(path):
        return lambda: None
    if path == "//sys/rpc_proxies" and command in ("get", "list"):
        return lambda: {"local": {}} if command == "get" else ["local"]
    if path.endswith(
        "/orchid/cluster_connection/queue_consumer_registration_manager/registrations"
    ):
        return lambda: _registrations(driver)
    _check(command, parameters)
    return None


def _check(command, parameters):
    path = str(parameters.get("path", ""))
    if _OUT_OF_SCOPE.search(path):
        out_of_scope(path.split("/")[3])
    if _SERVERS_ONLY.search(path):
        needs_servers(re.sub(r"[0-9a-f]+-[0-9a-f]+-[0-9a-f]+-[0-9a-f]+", "ID", path))
    kind = str(parameters.get("type", ""))
    if command == "create" and _TYPES_OUT_OF_SCOPE.search(kind):
        out_of_scope(f"objects of type {kind}")
    if command == "set":
        for what in (
            "//sys/@config",
            "//sys/tablet_cell_bundles",
            "//sys/accounts",
            "//sys/users",
            "_limit",
        ):
            if what in path:
                note("administered", path)
    if "acl" in path or (
        command in ("check_permission", "create") and "acl" in str(parameters.get("attributes"))
    ):
        note("acl", path)


# Attributes of masters' chunk trees and of cells, which no client of a sink reads.
_INTERNAL = re.compile(
    r'Attribute "(chunk_list_id|chunk_list_ids|tablet_ids|peers|config_version|total_statistics|local_statistics'
    r"|multicell_statistics|tablet_statistics|schema_id|master_memory_usage|tablet_cell_count|tablet_cell_ids|areas"
    r'|hunk_chunk_ids|snapshot_lock_mode|native_cell_tag|external_cell_tag|cell_bundle_id|schema_duplicate_count)" is'
)


def judge_error(command, error):
    """End the test as skipped if the embedded cluster says that it lacks something."""
    text = _flat(error)
    if re.search(
        r'embedded cluster|Command "\w+" is not registered|Unsupported (input|output) format', text
    ):
        pytest.skip(f"{LACKS}: {command}: {text[:160]}")
    if re.search(
        r"//sys/queue_agents/(queues|consumers|queue_agent_object_mapping|replicated_table_mapping)\b",
        text,
    ):
        needs_servers("tables of the queue agent's own state")
    if re.search(r"Error resolving path #[0-9a-f]+-[0-9a-f]+-(10064|1006[5-9]|102c|1000)", text):
        needs_servers("attributes of a dynamic table's chunks")
    found = _INTERNAL.search(text)
    if found:
        needs_servers(f"attribute {found[1]}")


def _flat(error):
    parts = [str(error.get("message", ""))]
    parts += [_flat(inner) for inner in error.get("inner_errors", [])]
    return " | ".join(part for part in parts if part)


def ask(driver, command, **parameters):
    """Run a small command over HTTP and return its value."""
    from yt import yson

    parameters["output_format"] = yson.to_yson_type("yson")
    error, _, data = driver._http("POST", command, parameters, None, None)
    if error is not None:
        from yt.common import YtResponseError

        raise YtResponseError(error)
    value = yson.loads(data) if data else None
    return value["value"] if isinstance(value, dict) and list(value) == ["value"] else value


def _queue_agent(driver, path, command):
    rest = path[len(_QUEUE_AGENT) :].strip("/")
    if not rest:
        names = ["localhost:0"]
        return names if command == "list" else {name: {} for name in names}
    match = re.fullmatch(r"[^/]+/orchid/(.*)", rest)
    inside = match[1] if match else ""
    if inside == "dynamic_config_manager/effective_config":
        return ask(driver, "get", path="//sys/queue_agents/config")
    if inside.endswith("/active"):
        return True
    if inside.endswith("pass_index"):
        # Every pass of the embedded queue agent is over between two of these.
        return int(time.time() / PASS_SECONDS)
    if inside.endswith("pass_error"):
        return {"code": 0, "message": "", "attributes": {}, "inner_errors": []}
    match = re.fullmatch(
        r"queue_agent/(queue|consumer)s(?:/(.*?))?(?:/(status|partitions|row))?", inside
    )
    if not match:
        return needs_servers(f"orchid {inside}")
    kind, name, part = match.groups()
    if name is None:
        return _objects(driver, kind)
    where = name.replace("\\/", "/").partition(":")[2]
    prefix = "queue" if kind == "queue" else "queue_consumer"
    if part == "row":
        return needs_servers("rows of the state of the queue agent")
    if part is not None:
        return ask(driver, "get", path=f"{where}/@{prefix}_{part}", return_only_value=True)
    return {
        part: ask(driver, "get", path=f"{where}/@{prefix}_{part}", return_only_value=True)
        for part in ("status", "partitions")
    }


def _objects(driver, kind):
    names = ["type", "dynamic", "sorted", "treat_as_queue_consumer"]
    found = ask(driver, "get", path="//tmp", attributes=names, return_only_value=True)
    result = {}

    def visit(value, path):
        known = getattr(value, "attributes", {})
        if known.get("type") == "table" and known.get("dynamic"):
            is_queue = not known.get("sorted")
            if is_queue if kind == "queue" else known.get("treat_as_queue_consumer"):
                result[f"primary:{path}"] = {}
        if isinstance(value, dict):
            for key, child in value.items():
                visit(child, f"{path}/{key}")

    visit(found, "//tmp")
    return result


def _registrations(driver):
    listed = ask(driver, "list_queue_consumer_registrations")
    return [
        {
            "queue": f"{r['queue_path'].attributes['cluster']}:{r['queue_path']}",
            "consumer": f"{r['consumer_path'].attributes['cluster']}:{r['consumer_path']}",
            "vital": r["vital"],
            "partitions": r["partitions"],
        }
        for r in listed
    ]
