"""All scalar functions by name, each declared by one of these modules, and those of the server that lack."""

from yt_exactly_once.local.ql.functions import documents, general
from yt_exactly_once.local.ql.functions.signatures import FUNCTIONS as SCALARS

__all__ = ["LACKING", "SCALARS", "documents", "general"]

_LACKING = """
    abs acos asin atan2 bit_count cbrt ceil cos cot degrees even exp factorial floor gamma gcd
    is_finite is_inf lcm lgamma ln log log10 log2 pow radians round sign signbit sin sqrt tan trunc xor
    format_guid format_timestamp format_timestamp_tz is_valid_utf8 numeric_to_string parse_double parse_int64
    parse_uint64 regex_escape regex_extract regex_full_match regex_partial_match regex_replace_all
    regex_replace_first to_valid_utf8 yson_string_to_any
    timestamp_floor_day timestamp_floor_day_tz timestamp_floor_hour timestamp_floor_hour_tz
    timestamp_floor_month timestamp_floor_month_tz timestamp_floor_quarter timestamp_floor_quarter_tz
    timestamp_floor_week timestamp_floor_week_tz timestamp_floor_year timestamp_floor_year_tz
    argmax argmin array_agg greatest hll_7 hll_8 hll_9 hll_10 hll_11 hll_12 hll_13 hll_14
    list_contains list_has_intersection make_entity make_list make_map yson_length
"""
LACKING = frozenset(_LACKING.split())
