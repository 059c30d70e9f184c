"""The fixtures that users of the package have in their own tests."""


def test_client_is_of_the_embedded_cluster(yt_client, yt_local_cluster):
    """Where no `YT_PROXY` names another one."""
    yt_client.create("map_node", "//tmp/of-the-plugin")
    assert yt_local_cluster.client(1).exists("//tmp/of-the-plugin")
