"""How `metromq pipeline what-if` shows costs: a table, bars and a sentence in the terminal, or a page for a browser."""

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from metromq.pipeline import ChoiceCost, Recommendation, SiteCost

COLUMNS: Final = ["choice", "between sites", "per broker", "busiest broker", "cloud", "table bytes", "largest table"]
BAR: Final = "█"
MOST_BARS: Final = 40
_STYLE: Final = """
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; color: #222 }
table { border-collapse: collapse; width: 100% } th, td { padding: .25rem .5rem; text-align: right }
th:first-child, td:first-child { text-align: left } tr + tr { border-top: 1px solid #ddd }
.bar { background: #7a9cc6; height: 1.1rem; min-width: 1px } .best { background: #2f7d4f } td.wide { width: 45% }
"""


def row(cost: "ChoiceCost") -> list[str]:
    def messages(site: "SiteCost") -> float:
        return site.messages_in + site.messages_out

    def size(site: "SiteCost") -> float:
        return site.table_bytes

    numbers = (cost.mean(messages), cost.most(messages), messages(cost.cloud), cost.mean(size), cost.most(size))
    return [cost.choice, *(f"{number:,.0f}" for number in (cost.messages_between, *numbers))]


def bars(costs: Sequence["ChoiceCost"], width: int) -> list[str]:
    """Messages between sites, one bar for each choice, the longest as wide as there is room."""
    names = max(len(cost.choice) for cost in costs)
    numbers = max(len(f"{cost.messages_between:,.0f}") for cost in costs)
    room = max(1, min(MOST_BARS, width - names - numbers - 4))
    return [
        f"{cost.choice:<{names}}  {cost.messages_between:>{numbers},.0f}  {BAR * round(room * share)}".rstrip()
        for cost, share in zip(costs, _shares(costs), strict=True)
    ]


def _shares(costs: Sequence["ChoiceCost"]) -> list[float]:
    most = max(cost.messages_between for cost in costs) or 1.0
    return [cost.messages_between / most for cost in costs]


def page(costs: Sequence["ChoiceCost"], found: "Recommendation | None", title: str) -> str:
    """One HTML file without scripts and without anything from elsewhere."""
    best = found.routing if found is not None else ""
    said = f"<p><strong>{escape(found.sentence)}</strong></p><p>{escape(found.apply)}</p>" if found else ""
    charts = "".join(_chart(cost, share, best) for cost, share in zip(costs, _shares(costs), strict=True))
    head = "".join(f"<th>{escape(name)}</th>" for name in COLUMNS)
    body = "".join(_line(row(cost)) for cost in costs)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title><style>{_STYLE}</style>'
        f"<h1>{escape(title)}</h1>{said}<h2>Messages between sites</h2><table>{charts}</table>"
        f"<h2>All numbers</h2><table><tr>{head}</tr>{body}</table></html>\n"
    )


def _chart(cost: "ChoiceCost", share: float, best: str) -> str:
    kind = "bar best" if cost.choice == best else "bar"
    bar = f'<td class="wide"><div class="{kind}" style="width: {share:.1%}"></div></td>'
    return f"<tr><td>{escape(cost.choice)}</td><td>{cost.messages_between:,.0f}</td>{bar}</tr>"


def _line(cells: Sequence[Any]) -> str:
    return f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in cells)}</tr>"
