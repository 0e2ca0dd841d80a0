"""Who has to go when too many wait at the door."""

from metromq.protocol.session.newcomers import Newcomer, Newcomers


class Guest(Newcomer):
    away = False

    def turn_away(self) -> None:
        self.away = True


def _arrive(room: Newcomers, *addresses: str) -> list[Guest]:
    guests = [Guest(address) for address in addresses]
    for guest in guests:
        room.came(guest)
    return guests


def test_the_oldest_gives_way() -> None:
    room = Newcomers(2)
    guests = _arrive(room, "a", "a", "a")
    assert [guest.away for guest in guests] == [True, False, False]
    assert (room.count, room.turned_away) == (2, 1)


def test_a_flood_from_one_address_pushes_out_its_own() -> None:
    room = Newcomers(3)
    lone, *flood = _arrive(room, "quiet", *["loud"] * 100)
    assert not lone.away
    assert [guest.away for guest in flood] == [True] * 98 + [False] * 2


def test_who_speaks_stays_longer_than_who_does_not() -> None:
    room = Newcomers(2)
    speaker, silent = _arrive(room, "a", "a")
    room.spoke(speaker)
    _arrive(room, "a")
    assert silent.away
    assert not speaker.away


def test_who_is_let_in_makes_room_and_is_never_turned_away() -> None:
    room = Newcomers(1)
    (first,) = _arrive(room, "a")
    assert room.gone(first)
    assert not room.gone(first)
    room.spoke(first)  # as when CONNECT is answered later
    (second,) = _arrive(room, "a")
    assert (first.away, second.away, room.count) == (False, False, 1)


def test_the_end_turns_all_away() -> None:
    room = Newcomers(5)
    guests = _arrive(room, "a", "b", "a")
    room.turn_all_away()
    assert all(guest.away for guest in guests)
    assert room.count == 0
