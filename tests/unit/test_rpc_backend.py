"""The RPC backend of the client: refused without its bindings, configured rightly with them.

No RPC proxy answers here. What is checked is what the bindings are given.
"""

from types import SimpleNamespace

import pytest

from yt_exactly_once import TransactionalSink
from yt_exactly_once.config import ClusterConfig
from yt_exactly_once.errors import ClusterUnavailableError, ConfigError
from yt_exactly_once.ytsaurus import backends
from yt_exactly_once.ytsaurus import client as client_module
from yt_exactly_once.ytsaurus.client import Connection

RPC = ClusterConfig(proxy="balancer:80", client_config={"backend": "rpc"})


class Listing:
    """An HTTP proxy that lists RPC proxies."""

    def __init__(self, *proxies):
        self.proxies = proxies
        self.asked = []

    def __call__(self, method, url, client):
        assert client.config["backend"] == "http"
        self.asked.append((method, url))
        return SimpleNamespace(json=lambda: {"proxies": list(self.proxies)})


@pytest.fixture
def listing(monkeypatch):
    """RPC proxies one and two, and bindings to reach them with."""
    found = Listing("one:9013", "two:9013")
    monkeypatch.setattr(client_module, "make_request_with_retries", found)
    monkeypatch.setattr(backends, "find_spec", lambda name: name)
    return found


def test_rpc_without_its_bindings_is_refused_when_the_sink_is_built(monkeypatch):
    """Not in the first batch, and with the way to install them."""
    monkeypatch.setattr(backends, "find_spec", lambda _name: None)
    with pytest.raises(ConfigError, match=r"bindings are not installed.*ytsaurus-rpc-driver"):
        TransactionalSink("//t", proxy="p", client_config={"backend": "rpc"})


def test_unknown_backend_is_refused():
    """The native backend needs a configuration of the cluster's masters."""
    with pytest.raises(ConfigError, match="'native'"):
        Connection(ClusterConfig(proxy="p", client_config={"backend": "native"}))


@pytest.mark.usefixtures("listing")
def test_request_ids_that_the_driver_cannot_read_are_refused_at_once():
    """With them each command would fail before it is sent, without a hint; ours pass none.

    The client sets them in `make_request` of `yt/wrapper/native_driver.py`.
    """
    given = {"backend": "rpc", "enable_passing_request_id_to_driver": True}
    with pytest.raises(ConfigError, match="Leave enable_passing_request_id_to_driver out"):
        Connection(ClusterConfig(proxy="p", client_config=given))
    assert Connection(RPC).reader.config["enable_passing_request_id_to_driver"] is False


def test_transactions_keep_to_one_rpc_proxy(listing):
    """Chosen from the cluster's list of RPC proxies, and the only one the driver knows."""
    connection = Connection(RPC)
    pinned = connection.pinned()
    assert pinned is connection.pinned()
    assert pinned.url in listing.proxies
    assert pinned.model.config["driver_config"] == {
        "connection_type": "rpc",
        "proxy_addresses": [pinned.url],
    }
    assert not pinned.model.config["proxy"]["retries"]["enable"]
    assert listing.asked == [("get", "http://balancer:80/api/v4/discover_proxies?type=rpc")]


def test_another_rpc_proxy_is_chosen_when_one_dies(listing):
    """The one that did not answer is avoided for a while."""
    connection = Connection(RPC)
    first = connection.pinned().url
    connection.unpin()
    assert {first, connection.pinned().url} == set(listing.proxies)


@pytest.mark.usefixtures("listing")
def test_all_senders_share_one_driver(monkeypatch):
    """A transaction is known to the driver that began it, and to no other."""
    drivers = []

    def driver_of(client):
        drivers.append(client)
        return "driver"

    monkeypatch.setattr(client_module, "get_driver_instance", driver_of)
    pinned = Connection(RPC).pinned()
    pinned.sender(2)
    assert drivers == [pinned.sender(0).client] * 2
    assert [sender.client._driver for sender in pinned.senders[1:]] == ["driver"] * 2


def test_the_real_bindings_take_the_configuration(monkeypatch):
    """Where they are installed: a proxy that is not there is unavailable, not an error of ours."""
    pytest.importorskip("yt_driver_rpc_bindings")
    monkeypatch.setattr(client_module, "make_request_with_retries", Listing("127.0.0.1:1"))
    quiet = {"backend": "rpc", "driver_logging_config": {"rules": [], "writers": {}}}
    connection = Connection(ClusterConfig(proxy="127.0.0.1:1", client_config=quiet))
    with pytest.raises(ClusterUnavailableError):
        connection.lookup("//ledger", [{"key": 1}])
