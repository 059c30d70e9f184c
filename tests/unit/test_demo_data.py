"""The data set as it is loaded into the queue."""

import pyarrow as pa

from yt_exactly_once.demo import data
from yt_exactly_once.demo.layout import DELAYS_KEY, DELAYS_TYPES, FLIGHT_TYPES, table_schema


def test_flights_have_the_columns_of_the_queue_and_its_gaps():
    """Every column arrives, and only those marked optional have missing values."""
    flights = data.read_flights()
    assert flights.num_rows == 336_776
    assert flights.column_names == list(FLIGHT_TYPES)
    missing = {name for name in FLIGHT_TYPES if flights[name].null_count}
    assert missing == {name for name, given in FLIGHT_TYPES.items() if given.endswith("?")}


def test_payload_deals_flights_out_over_the_partitions_from_where_the_last_one_ended():
    """The partition follows from the number of the flight alone."""
    flights = data.read_flights(10)
    rows = pa.ipc.open_stream(data.arrow_payload(flights.slice(3, 6), 3)).read_all()
    assert rows["$tablet_index"].to_pylist() == [3, 0, 1, 2, 3, 0]
    assert rows["tailnum"].to_pylist() == flights["tailnum"].to_pylist()[3:9]


def test_schema_marks_keys_and_optional_columns():
    """Names and marks become what the cluster wants."""
    columns = {column["name"]: column for column in table_schema(DELAYS_TYPES, DELAYS_KEY)}
    assert columns["key"] == {"name": "key", "type_v3": "utf8", "sort_order": "ascending"}
    assert columns["flights"] == {"name": "flights", "type_v3": "int64"}
    assert columns["dep_delay_sum"]["type_v3"] == {"type_name": "optional", "item": "int64"}
