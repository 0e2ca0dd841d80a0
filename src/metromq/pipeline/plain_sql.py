"""Which questions mean the same to DuckDB and to Spark, judged by how DuckDB parses them; no I/O.

A question is plain if everything in it is on the lists below. Whatever is not is left to Spark, so that both give the
same rows wherever both may answer; `tests/pipeline/test_quick.py` asks both.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Left out on purpose: casts and `round` (they round differently), `lower` and `upper` (letters outside ASCII), `||` and
# `concat` (numbers as text), `floor` (another type), everything about regular expressions.
_FUNCTIONS: Final = _words(
    "count count_star sum avg min max abs nullif greatest least length now current_timestamp current_date "
    "hour minute year month + - * ~~ !~~ row_number rank dense_rank"
)
_INTERVALS: Final = frozenset(f"to_{unit}" for unit in ("seconds", "minutes", "hours", "days", "weeks"))
_TRUNCATED: Final = frozenset(("second", "minute", "hour", "day", "week", "month", "year"))
_CLASSES: Final = _words(
    "FUNCTION COLUMN_REF CONSTANT COMPARISON CONJUNCTION OPERATOR BETWEEN CASE CAST TYPE STAR SUBQUERY WINDOW"
)
_TYPES: Final = _words(  # of nodes that have no class
    "SELECT_NODE SET_OPERATION_NODE CTE_NODE BASE_TABLE JOIN SUBQUERY EMPTY ORDER_MODIFIER LIMIT_MODIFIER "
    "DISTINCT_MODIFIER ORDER_DEFAULT ASCENDING DESCENDING"
)
_JOINS: Final = frozenset(("INNER", "LEFT", "RIGHT", "OUTER"))
_OPERATORS: Final = _words(
    "OPERATOR_IS_NULL OPERATOR_IS_NOT_NULL OPERATOR_NOT OPERATOR_COALESCE COMPARE_IN COMPARE_NOT_IN"
)
_ODD: Final = ("qualify", "sample", "at_clause", "distinct_on_targets", "exclude_list", "replace_list", "rename_list")
_SPARK_NAMES: Final = {"count_star": "count(1)", "now": "now()", "current_timestamp": "current_timestamp()"}

_OFFSET: Final = re.compile(r"'[^']*'|\b(offset)\b(?!\s+\d)", re.IGNORECASE)

Node = Mapping[str, Any]


class NotPlain(Exception):
    """Only Spark may answer; the text says why, after "it has"."""


def quoted(query: str) -> str:
    """`offset` is a word of DuckDB's language and a column of ours: a column where no number follows."""
    return _OFFSET.sub(lambda found: f'"{found[0]}"' if found[1] else found[0], query) if "--" not in query else query


def check(query: str, tree: Node) -> None:
    """Raises NotPlain; `tree` is what DuckDB's `json_serialize_sql` makes of the query."""
    if tree.get("error") or len(tree["statements"]) != 1:
        raise NotPlain("something that DuckDB does not know")
    for mark, what in (('"', "text in double quotes"), ("\\", "a backslash"), ("`", "a name in backticks")):
        if mark in query:
            raise NotPlain(what)
    for node in _nodes(tree["statements"][0]["node"]):
        _check_node(node)


def _nodes(node: Any) -> Iterator[Node]:
    """Every object of the tree, but not the inside of an interval, which DuckDB makes up of casts."""
    if isinstance(node, Mapping):
        yield node
        children: Any = () if node.get("function_name") in _INTERVALS else node.values()
    else:
        children = node if isinstance(node, list) else ()
    for child in children:
        yield from _nodes(child)


def _check_node(node: Node) -> None:
    kind = node.get("class")
    if kind is not None and kind not in _CLASSES:
        raise NotPlain(f"an expression of the kind {kind}")
    if kind is None and node.get("type", "SELECT_NODE") not in _TYPES:
        raise NotPlain(f"a part of the kind {node['type']}")
    odd = [name for name in _ODD if node.get(name)]
    if odd:
        raise NotPlain(odd[0])
    _CHECKS.get(kind or node.get("type", ""), _fine)(node)


def _fine(node: Node) -> None:
    pass


def _check_function(node: Node) -> None:
    name = node["function_name"]
    arguments = _arguments(node)
    if node.get("order_bys", {}).get("orders") or node.get("export_state"):
        raise NotPlain(f"an order inside {name}")
    if name in _FUNCTIONS or name in _INTERVALS:
        return
    if name in ("/", "%") and _divisor(arguments[-1]) and not any(_literal(item) == "NUMERIC" for item in arguments):
        return
    if name == "date_trunc" and _text(arguments[0]) in _TRUNCATED:
        return
    if name == "split_part" and _text(arguments[1]) and _divisor(arguments[2]):
        return
    raise NotPlain(f"the function {name}" if name not in ("/", "%") else f"{name}, and what if it is by zero?")


def _check_cast(node: Node) -> None:
    if _literal(node["child"]) != "STRING" or node["type_expr"]["type_name"] not in ("DATE", "TIMESTAMP"):
        raise NotPlain("a cast")


def _check_operator(node: Node) -> None:
    if node["type"] not in _OPERATORS:
        raise NotPlain(node["type"].lower())


def _check_join(node: Node) -> None:
    if node["join_type"] not in _JOINS or node["ref_type"] not in ("REGULAR", "CROSS") or node["using_columns"]:
        raise NotPlain("a join of another kind than ON")


def _check_select(node: Node) -> None:
    if len(node["group_sets"]) > 1 or node["aggregate_handling"] != "STANDARD_HANDLING":
        raise NotPlain("several groupings")


def _check_limit(node: Node) -> None:
    if node["limit_type"] != "ROW_COUNT":
        raise NotPlain("a limit in percent")


def _check_column(node: Node) -> None:
    if node["column_names"][-1].lower() == "json":
        raise NotPlain("the column json, which is a VARIANT")


_CHECKS: Final = {
    "FUNCTION": _check_function,
    "WINDOW": _check_function,
    "CAST": _check_cast,
    "OPERATOR": _check_operator,
    "COLUMN_REF": _check_column,
    "JOIN": _check_join,
    "SELECT_NODE": _check_select,
    "LIMIT_MODIFIER": _check_limit,
}


def _arguments(node: Node) -> list[Node]:
    return [item["expression"] for item in node["arguments"]]


def _literal(node: Node) -> str:
    """The kind of a constant; empty: it is none."""
    return str(node["literal"]["kind"]) if node.get("class") == "CONSTANT" else ""


def _text(node: Node) -> str:
    return str(node["literal"]["text"]).lower() if _literal(node) == "STRING" else ""


def _divisor(node: Node) -> bool:
    """A whole number other than zero."""
    return _literal(node) == "INTEGER" and int(node["literal"]["text"]) != 0


def tables(tree: Node) -> set[str]:
    """The tables that a plain question reads."""
    nodes = list(_nodes(tree["statements"][0]["node"]))
    own = {item["key"] for node in nodes for item in node.get("cte_map", {}).get("map", [])}
    return {node["table_name"].lower() for node in nodes if node.get("type") == "BASE_TABLE"} - own


def column_names(tree: Node, answered: Sequence[str]) -> list[str]:
    """The names that Spark gives to the columns of an answer; NotPlain: only Spark knows."""
    node = tree["statements"][0]["node"]
    while node["type"] == "SET_OPERATION_NODE":
        node = node["children"][0]
    items = node["select_list"]
    if any(item["class"] == "STAR" for item in items):
        if all(item["class"] in ("STAR", "COLUMN_REF") or item["alias"] for item in items):
            return list(answered)
        raise NotPlain("a column without a name beside *")
    return [item["alias"] or _spark_name(item) for item in items]


def _spark_name(node: Node) -> str:
    if node["class"] == "COLUMN_REF":
        return str(node["column_names"][-1])
    name = node.get("function_name", "")
    arguments = _arguments(node) if node["class"] == "FUNCTION" else []
    if name in _SPARK_NAMES and not node["distinct"]:
        return _SPARK_NAMES[name]
    if name.isidentifier() and arguments and all(item["class"] == "COLUMN_REF" for item in arguments):
        distinct = "DISTINCT " if node["distinct"] else ""
        return f"{name}({distinct}{', '.join(map(_spark_name, arguments))})"
    raise NotPlain("a column without a name: say AS ...")
