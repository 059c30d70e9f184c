"""Options of the source: what is accepted, and how everything else is refused."""

import pytest

from yt_exactly_once.errors import ConfigError
from yt_exactly_once.spark.source.options import OPTION_NAMES, SourceOptions, StartingPoint
from yt_exactly_once.ytsaurus import backends

QUEUE = "//home/app/queue"
CONSUMER = "//home/app/consumer"


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    monkeypatch.delenv("YT_PROXY", raising=False)
    monkeypatch.delenv("YT_TOKEN", raising=False)


def parse(**options):
    return SourceOptions.parse({"path": QUEUE, "proxy": "localhost:80"} | options)


def test_queue_alone_reads_everything_from_its_first_row():
    """Without a consumer nothing is claimed, so nothing is left out."""
    options = parse()
    assert (options.path, options.consumer_path) == (QUEUE, None)
    assert options.starting_offsets is StartingPoint.EARLIEST
    assert options.max_rows_per_partition is options.max_bytes_per_partition is None
    assert not options.include_service_columns
    assert not options.binary_strings
    assert options.parsing_type_v3
    assert options.fail_on_data_loss


def test_consumer_makes_its_offsets_the_start():
    """With a consumer a new query goes on where the consumer stands."""
    assert parse(consumer_path=CONSUMER).starting_offsets is StartingPoint.COMMITTED


def test_names_and_booleans_come_in_any_case_and_limits_are_numbers():
    """Spark does not keep the case of option names, nor Python that of booleans; all arrive as text."""
    options = parse(Include_Service_Columns="True", FAIL_ON_DATA_LOSS="FALSE")
    assert (options.include_service_columns, options.fail_on_data_loss) == (True, False)
    options = parse(max_rows_per_partition="100", max_bytes_per_partition=" 2048 ")
    assert (options.max_rows_per_partition, options.max_bytes_per_partition) == (100, 2048)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("committed", StartingPoint.COMMITTED),
        ("Earliest", StartingPoint.EARLIEST),
        ("latest", StartingPoint.LATEST),
        ('{"0": 12, "1": 0}', {0: 12, 1: 0}),
    ],
)
def test_every_kind_of_start_is_understood(value, expected):
    """One word for all partitions, or a row for each."""
    assert parse(consumer_path=CONSUMER, starting_offsets=value).starting_offsets == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("True", True), ("false", False), ("raw", ("raw",)), (" a, B ", ("a", "B"))],
)
def test_bytes_are_read_from_all_strings_or_from_those_that_are_named(text, expected):
    """By names as the table has them."""
    assert parse(binary_strings=text).binary_strings == expected


LIMITS = ("max_rows_per_partition", "max_bytes_per_partition", "shared_task_rows")
FLAGS = (
    *(f"include_{what}" for what in ("service_columns", "queue_path", "timestamp")),
    *("parsing_type_v3", "uuid_text", "any_json", "fail_on_data_loss"),
)
STARTS = [
    "",
    "first",
    "12",
    "{",
    "{}",
    '{"a": 1}',
    '{"0": -1}',
    '{"0": true}',
    '{"0": 1.5}',
    '{"0": "1"}',
]
PATHS = [
    "home/app/queue",
    "/home/app/queue",
    "//home/app/",
    "hahn://home/q",
    "//q/@schema",
    "//q[#1:#2]",
]


@pytest.mark.parametrize(
    ("name", "values", "told"),
    [
        ("starting_offsets", STARTS, "starting_offsets.*committed, earliest, latest"),
        ("starting_offsets", ['{"0": 1 "1": 2}'], r"understood \(.*line 1 column 9"),
        ("starting_offsets", ["committed"], "there is no consumer"),
        *((name, ["0", "-1", "many", "1.5", "", "1e3", "²"], f"{name}.*not a positive whole number")
          for name in LIMITS),
        *((name, ["yes", "1", ""], f"{name}.*neither true nor false") for name in FLAGS),
        ("path", PATHS, "not the plain Cypress path of a queue"),
        ("path", [""], r"path of the queue is missing.*load\("),
        ("consumer_path", PATHS, "not the plain Cypress path of a consumer"),
        ("consumer_path", [""], "path of the consumer is missing"),
    ],
)  # fmt: skip
def test_value_that_is_not_understood_is_refused_by_name(name, values, told):
    """None falls back to another: `yes` to no, an empty variable to reading without a consumer."""
    for value in values:
        with pytest.raises(ConfigError, match=told) as caught:
            parse(**{name: value})
        assert caught.value.where["option"] == name, value


@pytest.mark.parametrize("name", ["proxy", "token"])
def test_empty_proxy_or_token_is_refused(name, monkeypatch):
    """An empty value must not silently mean the one of the environment."""
    monkeypatch.setenv(f"YT_{name.upper()}", "from-environment")
    with pytest.raises(ConfigError, match=f"option {name} is empty"):
        parse(**{name: " "})


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("max_row_per_partition", "no option max_row_per_partition.*Did you mean max_rows"),
        ("tokn", "Did you mean token"),
    ],
)
def test_misspelt_option_is_refused_with_the_right_spelling(option, told):
    """Ignoring it would change what the query reads; its value may be a secret."""
    with pytest.raises(ConfigError, match=told) as caught:
        parse(**{option: "secret-token"})
    assert "secret-token" not in str(caught.value)


def test_unknown_option_is_refused_with_the_list():
    """All names are shown when none is near."""
    with pytest.raises(ConfigError, match="The options are") as caught:
        parse(zzz="1")
    assert all(name in str(caught.value) for name in OPTION_NAMES)


def test_backend_and_configuration_reach_the_client(monkeypatch):
    """The configuration is JSON, since options are text."""
    monkeypatch.setattr(backends, "find_spec", lambda name: name)
    assert parse().cluster.client_config == {}
    options = parse(backend=" RPC ", client_config='{"proxy": {"request_timeout": 5000}}')
    assert options.cluster.client_config == {"backend": "rpc", "proxy": {"request_timeout": 5000}}
    with pytest.raises(ConfigError, match="backend 'native'"):
        parse(backend="native")


@pytest.mark.parametrize("value", ["", "rpc", "[1]", '{"token": "secret"'])
def test_configuration_that_is_no_json_object_is_refused_and_not_shown(value):
    """It may hold a token."""
    with pytest.raises(ConfigError, match="client_config is not a JSON object") as caught:
        parse(client_config=value)
    assert "secret" not in str(caught.value)
