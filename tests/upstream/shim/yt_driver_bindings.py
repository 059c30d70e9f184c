"""Stands in for YTsaurus's C++ driver bindings: the interface of `yt_driver_bindings`, over the embedded cluster.

`Driver` with `connection_type` "http" (the default) sends raw HTTP commands, `/api/v3|v4/<command>`; with "rpc"
it is the real C++ driver of the package `ytsaurus-rpc-driver`. Both pass through `virtual` first: paths that only
real servers answer end the test as skipped, the orchid of the queue agent is answered from attributes.
"""

import http.client
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from urllib.parse import urlsplit

import ytint
from yt import yson

_TIMEOUT = 40
_POOL = ThreadPoolExecutor(32, thread_name_prefix="driver")
_LOCAL = threading.local()

# Input and output of commands that the embedded cluster does not publish (yt/yt/client/driver/driver.cpp).
_OTHERS = {
    "explain_query": ("null", "structured"),
    "get_in_sync_replicas": ("tabular", "structured"),
    "pull_rows": ("null", "tabular"),
    "read_blob_table": ("null", "binary"),
    "read_journal": ("null", "tabular"),
    "write_journal": ("tabular", "null"),
    "get_job_stderr": ("null", "binary"),
    "get_job_input": ("null", "binary"),
    "get_job_fail_context": ("null", "binary"),
    "read_hunks": ("null", "structured"),
    "write_hunks": ("null", "structured"),
}


class Request:
    def __init__(
        self,
        command_name,
        parameters=None,
        input_stream=None,
        output_stream=None,
        user=None,
        **rest,
    ):
        self.command_name = command_name
        self.parameters = parameters or {}
        self.input_stream = input_stream
        self.output_stream = output_stream
        self.user = user
        self.id = rest.get("id")


class Response:
    """The answer to one request, which runs on a thread of its own."""

    def __init__(self, future, command):
        self._future = future
        self._command = command

    def wait(self):
        try:
            self._future.exception(timeout=_TIMEOUT)
        except TimeoutError:
            ytint.note("hang", self._command)
            raise

    def is_set(self):
        return self._future.done()

    def is_ok(self):
        self.wait()
        error = self._future.result()[0]
        if error is not None:
            ytint.judge_error(self._command, error)
        return error is None

    def error(self):
        self.wait()
        return self._future.result()[0]

    def response_parameters(self):
        self.wait()
        return self._future.result()[1]


_FACTS = ("name", "input_type", "output_type", "is_volatile", "is_heavy")


def _descriptor(*values):
    """Return what is known of a command, each fact behind a call."""
    facts = zip(_FACTS, values, strict=True)
    return SimpleNamespace(**{name: lambda value=value: value for name, value in facts})


class _Answer(http.client.HTTPResponse):
    """Keeps the trailers, where errors in the middle of an answer are."""

    trailers = b""

    def _read_and_discard_trailer(self):
        lines = []
        while True:
            line = self.fp.readline(65537)
            if not line or line in (b"\r\n", b"\n"):
                break
            lines.append(line)
        self.trailers = b"".join(lines)


class _Connection(http.client.HTTPConnection):
    response_class = _Answer


class Driver:
    def __init__(self, config, connection_type=None):
        self._config = config
        self._api = config.get("api_version", 4)
        self._real = None
        self._descriptors = None
        if config.get("connection_type") == "rpc":
            import yt_driver_rpc_bindings

            left_out = ("http_url", "enable_internal_commands")
            keys = {k: v for k, v in config.items() if k not in left_out}
            self._bindings = yt_driver_rpc_bindings
            self._real = yt_driver_rpc_bindings.Driver(keys)

    def get_config(self):
        return self._config

    def get_command_descriptor(self, name):
        if self._descriptors is None:
            body = self._http("GET", "", {}, None, None)[2]
            self._descriptors = {
                d["name"]: _descriptor(*(d[fact] for fact in _FACTS)) for d in json.loads(body)
            }
        others = _OTHERS.get(name, ("null", "structured"))
        return self._descriptors.get(name) or _descriptor(name, *others, False, False)

    def get_command_descriptors(self):
        self.get_command_descriptor("get")
        return dict(self._descriptors)

    def execute(self, request):
        # Evaluated here, on the thread of the test: it may end the test.
        answer = ytint.intercept(self, request)
        if answer is not None:
            future = _POOL.submit(lambda: self._virtual(request, answer))
        elif self._real is not None:
            future = _POOL.submit(self._run_real, request)
        else:
            future = _POOL.submit(self._run_http, request)
        return Response(future, request.command_name)

    def gc_collect(self):
        pass

    def clear_metadata_caches(self):
        pass

    def terminate(self):
        if self._real is not None:
            self._real.terminate()
            self._real = None

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        ytint.needs_servers(f"driver.{name}")

    def _virtual(self, request, answer):
        value = answer()
        if request.command_name in ("get", "list", "exists"):
            unwrapped = request.parameters.get("return_only_value") or self._api == 3
            value = value if unwrapped else {"value": value}
        if request.output_stream is not None and value is not None:
            request.output_stream.write(yson.dumps(value, yson_format="text"))
        return None, {}

    def _run_real(self, request):
        options = {"command_name": request.command_name, "parameters": request.parameters}
        for name in ("input_stream", "output_stream", "user"):
            if getattr(request, name) is not None:
                options[name] = getattr(request, name)
        response = self._real.execute(self._bindings.Request(**options))
        response.wait()
        if response.is_ok():
            return None, dict(response.response_parameters() or {})
        return response.error(), {}

    def _run_http(self, request):
        descriptor = self.get_command_descriptor(request.command_name)
        parameters = dict(request.parameters)
        body = None
        if descriptor.input_type() != "null":
            stream = request.input_stream
            body = b"" if stream is None else b"".join(iter(lambda: stream.read(1 << 20), b""))
            method = "PUT"
        else:
            method = "POST"
        error, returned, data = self._http(
            method, request.command_name, parameters, body, request.user
        )
        if error is None and request.output_stream is not None:
            request.output_stream.write(data)
        return error, returned

    def _http(self, method, command, parameters, body, user):
        headers = {
            "X-YT-Header-Format": "<format=text>yson",
            "X-YT-Error-Format": "<format=text>yson",
            "Accept-Encoding": "identity",
        }
        if user is not None:
            headers["X-YT-Testing-User-Name"] = user
        text = yson.dumps(parameters, yson_format="text") if parameters else b""
        if method == "POST":
            headers["Content-Type"] = "application/x-yt-yson-text"
            body = text
        elif text:
            headers["X-YT-Parameters"] = text
        path = f"/api/v{self._api}" + (f"/{command}" if command else "")
        address = urlsplit(self._config["http_url"]).netloc
        connections = _LOCAL.__dict__.setdefault("connections", {})
        for attempt in range(2):
            connection = connections.get(address)
            fresh = connection is None
            if fresh:
                connection = connections[address] = _Connection(address, timeout=_TIMEOUT)
            try:
                connection.request(method, path, body=body, headers=headers)
                answer = connection.getresponse()
                data = answer.read()
                break
            except (http.client.HTTPException, OSError):
                connections.pop(address, None)
                if fresh or attempt:
                    raise
        if answer.will_close:
            connections.pop(address).close()
        returned = answer.headers.get("X-YT-Response-Parameters")
        returned = yson.loads(returned.encode("latin-1")) if returned else {}
        error = _error(answer.headers.get("X-YT-Error"), answer.headers.get("X-YT-Response-Code"))
        for line in answer.trailers.split(b"\r\n"):
            name, _, value = line.partition(b": ")
            if name.lower() == b"x-yt-error":
                error = error or _error(value.decode("latin-1"), None)
        if error is None and answer.status >= 400:
            message = f"HTTP {answer.status}: {data[:300]!r}"
            error = {"code": 1, "message": message, "attributes": {}, "inner_errors": []}
        return error, returned, data


def _error(text, code):
    if text is None or code == "0":
        return None
    try:
        error = yson.loads(text.encode("latin-1"))
    except Exception:
        error = json.loads(text)
    return error if error.get("code") else None


class BufferedStream:
    def __init__(self, size=0):
        ytint.needs_servers("yt_driver_bindings.BufferedStream")


def configure_logging(*args, **kwargs):
    pass


configure_address_resolver = configure_yp_service_discovery = reopen_logs = configure_logging
