"""Says in one sentence which routing a city should use, what that saves, and how sure that is; no I/O."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Final, Literal

from metromq.federation import CHANGEABLE, City
from metromq.federation.routing import ROUTINGS
from metromq.pipeline.whatif import ChoiceCost

Certainty = Literal["one day only", "sure", "unsure"]
_SHOWN: Final = "metromq city show > city.toml"
STEADY: Final = 0.1  # a saving that moves by less than this between days, as a share of all, is called steady


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The best routing that a city can use today, compared with the one that it uses or with the next best."""

    day: date  # the newest that was seen
    routing: str
    instead_of: str
    is_present: bool  # `instead_of` is what the city uses, by its file
    saved: float  # messages between sites on that day
    saved_share: float
    lowest_share: float  # of all days seen
    highest_share: float
    days: int
    days_best: int
    certainty: Certainty
    sentence: str
    apply: str


def recommend(
    days: Mapping[date, Sequence[ChoiceCost]], city: City | None = None, file: str = ""
) -> Recommendation | None:
    """None: fewer than two live routings were compared. `file` is how the user named the city."""
    newest = _live(days[max(days)])
    if len(newest) < 2:
        return None
    present = city.routing if city is not None and city.routing in {cost.choice for cost in newest} else None
    best = min(newest, key=lambda cost: (cost.messages_between, cost.choice != present, *_order(cost)))
    others = [cost for cost in newest if cost is not best]
    other = next((cost for cost in others if cost.choice == present), min(others, key=_order))
    shares = [_share(costs, best.choice, other.choice) for costs in days.values()]
    first = sum(_is_least(costs, best.choice) for costs in days.values())
    found = Recommendation(
        day=max(days),
        routing=best.choice,
        instead_of=other.choice,
        is_present=other.choice == present,
        saved=other.messages_between - best.messages_between,
        saved_share=_share(newest, best.choice, other.choice),
        lowest_share=min(shares),
        highest_share=max(shares),
        days=len(days),
        days_best=first,
        certainty=_certainty(shares, first),
        sentence="",
        apply=_apply(best.choice, city, file),
    )
    return replace(found, sentence=_sentence(found, best.choice == present))


def _live(costs: Sequence[ChoiceCost]) -> list[ChoiceCost]:
    """Choices that `routing` in a city's file knows; the others are the papers'."""
    return [cost for cost in costs if cost.choice in ROUTINGS]


def _order(cost: ChoiceCost) -> tuple[float, float, str]:
    return cost.messages_between, sum(site.table_bytes for site in cost.sites), cost.choice


def _is_least(costs: Sequence[ChoiceCost], choice: str) -> bool:
    between = {cost.choice: cost.messages_between for cost in _live(costs)}
    return between[choice] == min(between.values())


def _share(costs: Sequence[ChoiceCost], better: str, worse: str) -> float:
    between = {cost.choice: cost.messages_between for cost in costs}
    return (between[worse] - between[better]) / between[worse] if between[worse] else 0.0


def _certainty(shares: Sequence[float], days_best: int) -> Certainty:
    if len(shares) == 1:
        return "one day only"
    return "sure" if days_best == len(shares) and max(shares) - min(shares) <= STEADY else "unsure"


def _sentence(found: Recommendation, keeps: bool) -> str:
    than = f"than {found.instead_of}{' as now' if found.is_present else ''}"
    less = f"{found.saved:,.0f} messages ({found.saved_share:.0%}) fewer between sites on {found.day} {than}"
    if not found.saved:
        less = f"as many messages between sites as {found.instead_of}"
    what = f"Keep {found.routing}" if keeps else f"Use {found.routing}"
    return f"{what}: {less}. {_how_sure(found)}"


def _how_sure(found: Recommendation) -> str:
    if found.certainty == "one day only":
        return "Only one day was seen, so wait for more before you change anything."
    change = f"between days the saving changes from {found.lowest_share:.0%} to {found.highest_share:.0%}"
    best = f"It was best on {found.days_best} of {found.days} days, and {change}"
    return f"{best}: sure." if found.certainty == "sure" else f"{best}: not sure yet."


def _apply(routing: str, city: City | None, file: str) -> str:
    """What to type and change, while the city runs if its routing can change then."""
    if city is None:
        return f'To apply it, {_SHOWN}, write routing = "{routing}" into it, then: metromq city apply city.toml.'
    if city.routing == routing:
        return "Nothing has to change."
    runs = city.routing in CHANGEABLE and routing in CHANGEABLE
    named = file.endswith(".toml")
    if not named and not runs:
        return f"To apply it, stop the city, then: metromq up {routing}"
    central = city.central or city.brokers[0].name
    changed = replace(city, routing=routing, central=central if routing == "central" else "")  # type: ignore[arg-type]
    lines = [f'routing = "{routing}"', *([f'central = "{central}"'] if routing == "central" else [])]
    without = ', remove the line "central"' if city.central and routing != "central" else ""
    missing = [f"{where} {what}" for where, what in changed.problems()]
    first = f" It also needs: {'; '.join(missing)}." if missing else ""
    change = f"write {' and '.join(lines)} into {file if named else 'it'}{without}"
    if not runs:
        return f"To apply it, {change}, stop the city, then: metromq up {file}.{first}"
    begin = "" if named else f"{_SHOWN}, "
    return f"To apply it, {begin}{change}, then: metromq city apply {file if named else 'city.toml'}.{first}"
