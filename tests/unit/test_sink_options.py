"""Options of a sink that are impossible, alone or together: refused when the sink is built."""

import inspect
import pickle
from dataclasses import fields

import pytest

from yt_exactly_once import Changes, DeliveryMode, SinkOptions, Target, TransactionalSink
from yt_exactly_once.errors import ConfigError

CHANGES = Changes(sequence="lsn", operation="op")
TARGET_OPTIONS = {option.name for option in fields(Target)}


def sink(path="//t", **options):
    own = {name: options.pop(name) for name in TARGET_OPTIONS & options.keys()}
    return TransactionalSink(Target(path, **own), proxy="x", **options)


@pytest.mark.parametrize("options", [
    {},
    {"update_columns": True, "delete_marker": "gone"},
    {"update_columns": True, "aggregate": True},
    {"write": "replace"},
    {"write": "append"},
    {"write": "upsert", "update_columns": True},
    {"placement": ["a", "b"]},
    {"delete_marker": "gone", "split_oversized": True},
    {"dead_letter_path": "//t_rejects", "show_values": True},
    {"changes": Changes(sequence="lsn"), "write": "upsert"},
    {"mode": "idempotent", "source_position": ("topic", "partition", "offset")},
])  # fmt: skip
def test_possible_options_are_accepted(options):
    """Nothing is asked of the cluster yet."""
    assert sink(**options).options.targets[0].path == "//t"


@pytest.mark.parametrize(("options", "message"), [
    ({"write": "somehow"}, "Unknown write 'somehow'"),
    ({"write": "add"}, "Unknown write 'add'.*append, upsert, replace"),
    ({"placement": "by luck"}, "Unknown placement 'by luck'"),
    ({"placement": ""}, "Unknown placement ''"),
    ({"placement": []}, "names no column"),
    *(({"mode": "idempotent", "source_position": given}, "at least two columns")
      for given in ("offset", ["offset"], ["offset", "offset"], ["a", "b", "a"], [])),
    ({"source_position": ["partition", "offset"]}, "no meaning in mode 'transactional'"),
    ({"write": "replace", "update_columns": True}, "exclude each other"),
    ({"write": "replace", "delete_marker": "gone"}, "exclude each other"),
    ({"write": "replace", "aggregate": True}, "exclude each other"),
    ({"delete_marker": "gone", "aggregate": True}, "exclude each other"),
    ({"write": "replace", "split_oversized": True}, "exclude each other"),
    *(({"digest": True, **option}, "digest and .* exclude each other")
      for option in ({"update_columns": True}, {"delete_marker": "gone"}, {"aggregate": True})),
    *(({"changes": CHANGES, **option}, "changes and .* exclude each other") for option in (
        {"update_columns": True}, {"delete_marker": "gone"}, {"aggregate": True}, {"write": "replace"},
        {"unique_keys": True}, {"digest": True}, {"split_oversized": True}, {"dead_letter_path": "//r"},
    )),
    *(({"changes": CHANGES, "mode": mode}, "changes is not possible in mode")
      for mode in ("at-least-once", "idempotent")),
    ({"mode": "sometimes"}, "Unknown mode 'sometimes'"),
    ({"connections": 0}, "connections"),
    ({"rows_per_tablet_limit": 0}, "rows_per_tablet_limit"),
    ({"dyn_batch_size": 0}, "dyn_batch_size"),
    ({"dead_letter_path": "t"}, "not a Cypress path"),
    ({"dead_letter_path": "//t"}, "uses already"),
    ({"dead_letter_path": "//t_ledger"}, "uses already"),
    ({"dead_letter_path": "//r", "mode": "at-least-once"}, "not possible in mode"),
    ({"dead_letter_path": "//r", "mode": "idempotent"}, "not possible in mode"),
    ({"split_oversized": True, "mode": "at-least-once"}, "has no meaning in mode"),
    ({"split_oversized": True, "mode": "idempotent"}, "has no meaning in mode"),
    # They bring all rows to the driver.
    *(({"sent_by": "tasks", **option}, named) for option, named in (
        ({"split_oversized": True}, "split_oversized"),
        ({"changes": CHANGES}, "changes"),
    )),
    *(({**option, "mode": mode}, "not possible in mode")
      for option in ({"write": "replace"}, {"delete_marker": "gone"}, {"aggregate": True})
      for mode in ("at-least-once", "idempotent")),
])  # fmt: skip
def test_impossible_options_are_refused(options, message):
    """With the reason and a way out."""
    with pytest.raises(ConfigError, match=message) as caught:
        sink(**options)
    assert caught.value.remedy


def test_what_weakens_a_promise_must_be_asked_for():
    """A batch is one transaction, values stay private, and nothing that is missing is accepted."""
    options = sink().options
    assert options.mode == DeliveryMode.TRANSACTIONAL.value
    assert not any([options.split_oversized, options.show_values, options.new_ledger])
    assert options.accept_incomplete is None


@pytest.mark.parametrize(
    ("given", "paths"),
    [
        ("//a", ["//a"]),
        (Target("//a"), ["//a"]),
        (["//b", Target("//a", write="upsert")], ["//b", "//a"]),
    ],
)
def test_target_may_be_a_path_a_target_or_several_of_both(given, paths):
    """Of several the first path in alphabetical order names the ledger."""
    options = TransactionalSink(given, proxy="x").options
    assert [target.path for target in options.targets] == paths
    assert (options.ledger, options.producer) == ("//a_ledger", "//a_producer")


def test_several_targets_are_for_one_transaction():
    """In the other modes each would be committed by itself."""
    for mode in ("at-least-once", "idempotent"):
        with pytest.raises(ConfigError, match=f"Several targets .* in mode '{mode}'"):
            TransactionalSink(["//a", "//b"], proxy="x", mode=mode)


@pytest.mark.parametrize("targets", [[], ["//a", Target("//a", write="append")]])
def test_no_target_and_a_target_twice_are_refused(targets):
    """Nothing would be written, or rows of one table twice."""
    with pytest.raises(ConfigError, match=r"no target|//a twice"):
        TransactionalSink(targets, proxy="x")


@pytest.mark.parametrize("name", sorted(TARGET_OPTIONS - {"path"}))
def test_option_of_a_target_given_to_the_sink_is_refused_with_its_place(name):
    """Which of several targets was meant could not be known."""
    with pytest.raises(ConfigError, match=rf"no option {name}: .*Target\(.*{name}="):
        TransactionalSink("//a", proxy="x", **{name: None})


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("path", "Give it first, without a name"),
        ("split_oversised", "Did you mean split_oversized"),
        ("xyz", "The options are: target, mode, "),
    ],
)
def test_unknown_option_is_refused_with_a_way_out(name, remedy):
    """A misspelt one is guessed."""
    with pytest.raises(ConfigError, match=f"The sink has no option {name}.*{remedy}"):
        TransactionalSink("//a", proxy="x", **{name: "//b"})


def test_unknown_options_are_all_named_in_one_order():
    """Whatever the order of the arguments is."""
    given = {"split_oversised": 1, "conections": 2}
    messages = set()
    for names in (list(given), list(reversed(given))):
        with pytest.raises(ConfigError) as caught:
            TransactionalSink("//home/t", proxy="localhost:1", **dict.fromkeys(names, 1))
        messages.add(str(caught.value))
    (message,) = messages
    assert message.startswith("The sink has no option conections and no option split_oversised ")
    assert message.index("Did you mean connections?") < message.index("split_oversized?")


@pytest.mark.parametrize("mode", ["transactionl", "at_least_once", "Idempotent"])
def test_misspelt_mode_is_guessed(mode):
    """The message names the nearest mode first, and then all."""
    near = {"t": "transactional", "a": "at-least-once", "i": "idempotent"}[mode[0].lower()]
    with pytest.raises(ConfigError, match=f"Did you mean {near}. Use one of: at-least-once, "):
        TransactionalSink("//home/t", proxy="localhost:1", mode=mode)


@pytest.mark.parametrize(
    ("mode", "hint"),
    [("exactly-once", "Did you mean transactional"), ("at-most-once", "Use one of")],
)
def test_no_mode_is_suggested_that_promises_less_than_was_meant(mode, hint):
    """Names that only look alike may be opposites."""
    with pytest.raises(ConfigError) as caught:
        TransactionalSink("//home/t", proxy="localhost:1", mode=mode)
    assert caught.value.remedy.startswith(hint)


def test_signature_of_the_sink_is_that_of_its_options():
    """Editors and `help()` show every option, though each is stated once."""
    sink, options = (
        inspect.signature(each).parameters for each in (TransactionalSink, SinkOptions)
    )
    assert list(sink.values()) == list(options.values())


def test_token_does_not_show_and_survives_the_way_to_another_process(monkeypatch):
    """The environment of the driver counts, not the one where the sink travels to."""
    monkeypatch.setenv("YT_PROXY", "here")
    made = TransactionalSink("//a", token="never-shown")
    monkeypatch.delenv("YT_PROXY")
    options = pickle.loads(pickle.dumps(made)).options
    assert (options.cluster.proxy, options.cluster.token.reveal()) == ("here", "never-shown")
    assert "never-shown" not in repr(made) + repr(vars(made)) + repr(vars(options))


@pytest.mark.parametrize(
    ("given", "batches"), [(None, []), (4, [4]), ((4, 4), [4]), ((4, 6), [4, 5, 6])]
)
def test_batches_that_are_given_up_are_those_that_are_named(given, batches):
    """The first and the last one included."""
    assert (
        list(SinkOptions("//t", proxy="localhost:1", accept_incomplete=given).accepted) == batches
    )
