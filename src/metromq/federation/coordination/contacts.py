"""Whom a broker keeps links to: everybody, or a few companions where a city is large; no I/O."""

from collections.abc import Callable, Iterable

from mypy_extensions import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class Contacts:
    """Everybody has a link to everybody, or to the neighbours that the routing names."""

    on_demand = False  # whether other links are opened when there is something to send

    def kept(self, neighbours: Callable[[], frozenset[str]], is_named: bool) -> frozenset[str]:
        """The peers that always have a link; `is_named`: the routing says who its neighbours are."""
        return neighbours()

    def guests(self, linked: Iterable[str]) -> list[str]:
        """Peers that have a link for now, and are not greeted as those that always have one."""
        return []


EVERYBODY = Contacts()


class Companions(Contacts):
    """A few have a link whatever there is to send, and those that the routing names."""

    on_demand = True

    def __init__(self, companions: frozenset[str]) -> None:
        self._companions = companions

    def kept(self, neighbours: Callable[[], frozenset[str]], is_named: bool) -> frozenset[str]:
        return self._companions | neighbours() if is_named else self._companions

    def guests(self, linked: Iterable[str]) -> list[str]:
        return sorted(peer for peer in linked if peer not in self._companions)
