"""Options of a sink that are impossible, alone or together: refused when the sink is built."""

import pytest

from yt_exactly_once import Target, TransactionalSink
from yt_exactly_once.errors import ConfigError


def sink(path="//t", **options):
    return TransactionalSink(path, proxy="x", **options)


@pytest.mark.parametrize("options", [
    {},
    {"update_columns": True, "delete_marker": "gone"},
    {"update_columns": True, "aggregate": True},
    {"write": "replace"},
    {"placement": ["a", "b"]},
    {"delete_marker": "gone", "split_oversized": True},
    {"reject_to": "//t_rejects", "show_values": True},
])  # fmt: skip
def test_possible_options_are_accepted(options):
    """Nothing is asked of the cluster yet."""
    assert sink(**options).options.targets[0].path == "//t"


@pytest.mark.parametrize(("options", "message"), [
    ({"write": "somehow"}, "Unknown write 'somehow'"),
    ({"placement": "by luck"}, "Unknown placement 'by luck'"),
    ({"placement": ""}, "Unknown placement ''"),
    ({"placement": []}, "names no column"),
    ({"write": "replace", "update_columns": True}, "exclude each other"),
    ({"write": "replace", "delete_marker": "gone"}, "exclude each other"),
    ({"write": "replace", "aggregate": True}, "exclude each other"),
    ({"delete_marker": "gone", "aggregate": True}, "exclude each other"),
    ({"write": "replace", "split_oversized": True}, "exclude each other"),
    ({"reject_to": "t"}, "not a Cypress path"),
    ({"reject_to": "//t"}, "uses already"),
    ({"reject_to": "//t_ledger"}, "uses already"),
    ({"reject_to": "//r", "mode": "at-least-once"}, "not possible in mode"),
    ({"reject_to": "//r", "mode": "idempotent"}, "not possible in mode"),
    *(({**option, "mode": mode}, "not possible in mode")
      for option in ({"write": "replace"}, {"delete_marker": "gone"}, {"aggregate": True})
      for mode in ("at-least-once", "idempotent")),
])  # fmt: skip
def test_impossible_options_are_refused(options, message):
    """With the reason and a way out."""
    with pytest.raises(ConfigError, match=message) as caught:
        sink(**options)
    assert caught.value.remedy


@pytest.mark.parametrize("options", [
    {"update_columns": True}, {"placement": "preserve"}, {"write": "replace"},
    {"delete_marker": "gone"}, {"aggregate": True},
])  # fmt: skip
def test_option_of_a_target_beside_a_list_of_targets_is_refused(options):
    """Which of them was meant cannot be known; inside a Target it is fine."""
    (name,) = options
    with pytest.raises(ConfigError, match=f"{name} was given beside a list of targets"):
        sink([Target(path="//a"), Target(path="//b")], **options)
    assert sink([Target(path="//a", **options), Target(path="//b")])
