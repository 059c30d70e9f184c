"""The data set as it is loaded into the queue."""

import pyarrow as pa

from yt_exactly_once.demo import data
from yt_exactly_once.demo.layout import FLIGHT_TYPES


def test_flights_have_the_columns_of_the_queue_and_its_gaps():
    """Every column arrives."""
    flights = data.read_flights()
    assert flights.num_rows == 336_776
    assert flights.column_names == list(FLIGHT_TYPES)
    assert flights["dep_delay"].null_count


def test_payload_deals_flights_out_over_the_partitions_from_where_the_last_one_ended():
    """The partition follows from the number of the flight alone."""
    flights = data.read_flights(10)
    rows = pa.ipc.open_stream(data.arrow_payload(flights.slice(3, 6), 3)).read_all()
    assert rows["$tablet_index"].to_pylist() == [3, 0, 1, 2, 3, 0]
    assert rows["tailnum"].to_pylist() == flights["tailnum"].to_pylist()[3:9]
