"""The text of queries: quoting, constants, output names, syntax errors."""

from collections.abc import Iterator

import pytest

from tests.contract.tables import columns
from tests.local.ql_tables import Tables, opened


@pytest.fixture(scope="module")
def tables() -> Iterator[Tables]:
    with opened() as found:
        schema = columns(a="int64", b="int64", s="string")
        schema += [{"name": name, "type": "int64"} for name in ("odd name", "x-y[0]", "select")]
        row = {"a": 1, "b": 2, "s": b"text", "odd name": 3, "x-y[0]": 4, "select": 5}
        found.create("//one", schema, [row])
        yield found


@pytest.mark.parametrize(
    ("query", "row"),
    [
        # SELECT is optional, keywords have no case, a path has brackets or backticks.
        ("a from [//one]", {"a": 1}),
        ("SELECT a FROM [//one]", {"a": 1}),
        ("select a from `//one`", {"a": 1}),
        ("sElEcT\n\ta\nFROM [//one]\n", {"a": 1}),
        ("t.a as a from [//one] as t", {"a": 1}),
        ("t.a as a from [//one] t", {"a": 1}),
        # Names that are no identifiers are quoted, and come back without quotes.
        ("[odd name] from [//one]", {"odd name": 3}),
        ("`odd name` from [//one]", {"odd name": 3}),
        ("[x-y[0]] from [//one]", {"x-y[0]": 4}),
        ("`x-y[0]` from [//one]", {"x-y[0]": 4}),
        ("`select` from [//one]", {"select": 5}),
        ("[$row_index] from [//one]", {"$row_index": 0}),
        ("`$tablet_index` from [//one]", {"$tablet_index": 0}),
        # A name given anywhere can be used anywhere, and hides a column only outside itself.
        (
            "a + 1 as a, a + 10 as more from [//one] where more = 12 order by more limit 1",
            {"a": 2, "more": 12},
        ),
        (f"a from [//one] where {' and '.join(['a = 1'] * 49)}", {"a": 1}),
    ],
)
def test_every_spelling_of_a_query_is_read(tables: Tables, query: str, row: dict[str, int]) -> None:
    """Paths, identifiers and aliases, fifty conditions deep."""
    assert tables.select(query) == [row]


def test_brackets_in_syntax_version_2_are_refused(tables: Tables) -> None:
    """From version 2 on only backticks quote."""
    assert tables.select("a from `//one`", syntax_version=2) == [{"a": 1}]
    error = tables.refusal("a from [//one]", syntax_version=2)
    assert "syntax error, unexpected `[`" in error.message


@pytest.mark.parametrize(
    ("query", "position", "unexpected"),
    [
        ("a, from [//one]", "3-7", "keyword `FROM`"),
        ("a from [//one] where", "20-20", "end of stream"),
        ("a from [//one] limit 1 offset 1", "23-29", "keyword `OFFSET`"),
        ("a ! b from [//one]", "2-3", "lexer failure"),
        ("a from [//one", "7-13", "lexer failure"),
        ('"open from [//one]', "0-1", "lexer failure"),
        ("a b from [//one]", "2-3", "identifier"),
        ("a from [//one] where a = 1 = ", "29-29", "end of stream"),
        ("* , a from [//one]", "2-3", "`,`"),
        ("a from [//one] limit -1", "21-22", "`-`"),
        ("", "0-0", "end of stream"),
    ],
)
def test_syntax_error_shows_its_place(
    tables: Tables, query: str, position: str, unexpected: str
) -> None:
    """The error says what was met, and where in the text."""
    error = tables.refusal(query)
    assert error.message.startswith(
        f"Error while parsing query: syntax error, unexpected {unexpected}"
    )
    assert error.attributes["position"] == position
    assert " >>>>> " in error.attributes["query"]


@pytest.mark.parametrize(
    ("query", "feature"),
    [
        ("a from (b from [//one])", "Subquery"),
        ("a from [//one] with index [//index]", "WITH INDEX"),
        ("a from [//one] array join b as c", "ARRAY JOIN"),
        ("a from [//one] join [//two] using a", "JOIN"),
        ("a from [//one] as o left join [//two] as t on o.a = t.a", "LEFT JOIN"),
        ("a from [//one] group by a with totals", "WITH TOTALS"),
        ("case a when 1 then 2 end from [//one]", "CASE"),
        ("a from [//one] where a = {x}", "A placeholder"),
        ("~a from [//one]", "Operator ~"),
        ("first(a) from [//one] group by b", 'Undefined function "first"'),
        ("transform(a, (1), (2)) from [//one]", "TRANSFORM"),
        ("a from [//one] where s like 'x%'", "LIKE"),
        ("cast(a as string) from [//one]", "CAST"),
        ("o.a.b from [//one] as o", "Access to a part of a composite value"),
    ],
)
def test_what_is_lacking_is_refused_by_name(tables: Tables, query: str, feature: str) -> None:
    """An error says that the query may be right elsewhere."""
    message = tables.refusal(query).message
    assert message.startswith(feature)
    assert "not supported by the embedded cluster" in message


@pytest.mark.parametrize(
    ("expression", "name"),
    [
        ("a", "a"),
        ("a+1", "(a)+(1)"),
        ("a + b * 2", "(a)+((b)*(2))"),
        ("-a", "-(a)"),
        ("not a = 1", "NOT((a)=(1))"),
        ("a <> b", "(a)!=(b)"),
        ("if(a = 1, 2u, null)", "if((a)=(1), 2u, null)"),
        ('concat(s, "x\ty")', 'concat(s, "x\\ty")'),
        ("a in (1, 2)", "(a) IN (1, 2)"),
        ("(a, b) in ((1, 2), (3, 4))", "(a, b) IN ((1, 2), (3, 4))"),
        ("a between 1 and 2", "((a)>=(1))AND((a)<=(2))"),
        ("a is null", "is_null(a)"),
        ("a is not null", "NOT(is_null(a))"),
        ("[odd name] + 1", "(`odd name`)+(1)"),
        ("a as [any name]", "any name"),
    ],
)
def test_output_column_without_alias_is_named_by_its_text(
    tables: Tables, expression: str, name: str
) -> None:
    """The name of a column follows the server's spelling of the expression."""
    (row,) = tables.select(f"{expression} from [//one]")
    assert list(row) == [name]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("18446744073709551616u from [//one]", '"18446744073709551616" is out of range'),
        ("a as x, b as x from [//one]", 'Alias "x" has been already used'),
        (f"{'+'.join(['a'] * 60)} from [//one]", "Maximum expression depth exceeded"),
        # A comparison of tuples nests once for each item, whatever the depth of the text.
        (
            f"a from [//one] where ({', '.join(['a'] * 2000)}) < ({', '.join(['b'] * 2000)})",
            "Expressions are nested too deeply for the embedded cluster",
        ),
    ],
    ids=["large", "alias", "deep", "wide"],
)
def test_what_has_no_meaning_or_is_too_deep_is_refused(
    tables: Tables, query: str, message: str
) -> None:
    """No number is silently cut, no name has two meanings, and depth is bounded as on the server."""
    assert message in tables.refusal(query).message
