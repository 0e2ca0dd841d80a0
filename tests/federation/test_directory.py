"""A client has one session in the city: the latest CONNECT wins, also when the directory comes and goes."""

from metromq.federation.directory import NO_SESSION, Directory
from metromq.federation.effects import Effect, Keep, Send, SessionFound, SessionRefused, SessionTaken
from metromq.federation.hybrid_clock import HybridClock
from metromq.federation.links.frames import ClientAnswer, ClientClaim, ClientMoved, ClientReleased

NAMES = ("b1", "b2", "b3", "b4")


class City:
    def __init__(self) -> None:
        self.brokers = {name: Directory(name, NAMES, HybridClock()) for name in NAMES}
        self.alive = set(NAMES)
        self.done: list[tuple[str, Effect]] = []
        self.frames = 0

    def run(self, at: str, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Keep):
                continue
            if not isinstance(effect, Send):
                self.done.append((at, effect))
            elif effect.peer in self.alive:
                self.frames += 1
                self.run(effect.peer, self.receive(at, effect))

    def receive(self, sender: str, effect: Send) -> list[Effect]:
        broker, frame = self.brokers[effect.peer], effect.frame
        if isinstance(frame, ClientClaim):
            return broker.claimed(sender, frame)
        if isinstance(frame, ClientAnswer):
            return broker.answered(frame)
        if isinstance(frame, ClientMoved):
            return broker.moved(frame, sender)
        assert isinstance(frame, ClientReleased)
        broker.released(sender, frame)
        return []

    def connect(
        self,
        at: str,
        client: str,
        time_us: int,
        clean: bool = False,
        user: str = "",
        asks: bool | None = None,
        replaces: bool = False,
    ) -> list[tuple[str, Effect]]:
        self.done = []
        asks = not clean if asks is None else asks
        clean_us = time_us if clean else 0
        effects = self.brokers[at].connected(client, time_us, clean, asks, user, NO_SESSION, replaces, clean_us)
        self.run(at, effects)
        return self.done

    def lose(self, name: str) -> None:
        self.alive.discard(name)
        self.living()

    def living(self) -> None:
        self.done = []
        for name in sorted(self.alive):
            self.run(name, self.brokers[name].living(tuple(sorted(self.alive))))


def test_a_session_is_found_and_taken() -> None:
    city = City()
    for client in ("ann", "bob", "cat", "dog"):  # hashed to different directories
        assert city.connect("b1", client, 1) == [("b1", SessionFound(client, 1, ""))]
        found = city.connect("b2", client, 2)
        assert sorted(found, key=str) == sorted(
            [("b1", SessionTaken(client, 2, "b2", False)), ("b2", SessionFound(client, 2, "b1", 1))], key=str
        )
    assert city.frames <= 4 * 5, "a CONNECT costs a question, an answer and a word to the old broker"


def test_a_clean_start_ends_the_session_elsewhere() -> None:
    city = City()
    city.connect("b1", "ann", 1)
    assert city.connect("b3", "ann", 2, clean=True) == [("b1", SessionTaken("ann", 2, "b3", True, False, 2))]


def test_what_comes_of_a_session_that_a_clean_start_ended_is_void() -> None:
    city = City()
    city.connect("b1", "ann", 5)
    city.brokers["b1"].opened("ann", 1, 0)  # it came from elsewhere
    city.connect("b3", "ann", 7, clean=True)
    assert city.brokers["b1"].void_before("ann", "") == 7
    assert city.brokers["b1"].void_before("ann", "another") == 0, "nobody ends what another user has"
    assert city.brokers["b3"].void_before("ann", "") == 7


def test_a_session_that_only_moved_is_not_void() -> None:
    city = City()
    city.connect("b1", "ann", 1)
    city.connect("b2", "ann", 2)
    assert city.brokers["b1"].void_before("ann", "") == 0


def test_a_session_that_its_client_went_on_with_since_it_began_anew_is_not_void() -> None:
    for client in ("ann", "bob", "cat", "dog"):  # hashed to different directories
        city = City()
        city.connect("b1", client, 1)
        city.lose("b3")
        lonely = city.brokers["b3"]
        lonely.living(("b3",))
        lonely.connected(client, 2, True, True, "", NO_SESSION, False, 2)  # nobody hears of it
        city.connect("b1", client, 4)
        lonely.connected(client, 6, False, True, "", 2, False, 2)  # goes on with the session that was begun anew
        city.alive.add("b3")
        city.living()
        assert [effect for at, effect in city.done if at == "b1"] == [SessionTaken(client, 6, "b3", False, False, 2)]


def away(client: str) -> City:
    """b1 is away with the client's session; the client begins anew at b3, and its connection ends."""
    city = City()
    for broker in city.brokers.values():
        broker.clean_starts.doubts = lambda: len(city.alive) < len(NAMES)
    city.connect("b1", client, 1)
    city.lose("b1")
    city.connect("b3", client, 5, clean=True, asks=True)
    city.brokers["b3"].let_in(client)
    city.run("b3", city.brokers["b3"].ended(client))
    return city


def back(city: City, client: str) -> list[Effect]:
    """What b1 hears when it is back, with its session."""
    city.brokers["b1"] = Directory("b1", NAMES, HybridClock())
    city.brokers["b1"].restored(client, 1, "", 1)
    city.alive.add("b1")
    city.living()
    done = list(city.done)
    for name in ("b2", "b3", "b4"):
        city.run(name, city.brokers[name].reconnected("b1"))
        city.run("b1", city.brokers["b1"].reconnected(name))
    return [effect for at, effect in (*done, *city.done) if at == "b1" and isinstance(effect, SessionTaken)]


CLIENTS = ("ann", "bob", "cat", "dog", "eel", "fox")


def test_who_was_away_hears_that_a_client_began_anew_though_that_session_has_ended() -> None:
    for client in CLIENTS:
        city = away(client)
        assert back(city, client)[:1] == [SessionTaken(client, 5, "b3", True, False, 5)], client
        assert city.connect("b4", client, 9) == [("b4", SessionFound(client, 9, ""))], "nobody has a session"


def test_a_session_that_begins_behind_a_clean_start_knows_of_it() -> None:
    for client in CLIENTS:
        city = away(client)
        city.connect("b2", client, 7)
        assert city.brokers["b2"].clean_us(client) == 5, "so that what is older has no place in it"
        assert not city.brokers["b2"].is_void(client, 5)
        assert city.brokers["b2"].is_void(client, 4)
        (taken,) = {effect.clean_start for effect in back(city, client) if isinstance(effect, SessionTaken)}
        assert taken, "what b1 has is void and does not follow the client"


def test_that_a_client_began_anew_survives_a_restart() -> None:
    city = away("ann")
    before = city.brokers["b3"]
    city.brokers["b3"] = again = Directory("b3", NAMES, HybridClock())
    for kept in before.clean_starts.snapshot():
        assert isinstance(kept.frame, ClientMoved)
        again.clean_starts.restore(kept.frame)
    assert again.void_before("ann", "") == 5
    assert again.clean_starts.snapshot() == before.clean_starts.snapshot()


def test_in_calm_nobody_need_remember_that_clients_begin_anew() -> None:
    city = City()
    city.connect("b3", "ann", 5, clean=True, asks=True)
    assert all(not broker.clean_starts.snapshot() for broker in city.brokers.values())


def test_a_client_that_was_let_in_with_its_session_goes_on_when_told_past_the_directory() -> None:
    """The directory has not answered, and need not."""
    city = City()
    client = next(name for name in CLIENTS if city.brokers["b1"].keeper_of(name) not in ("b1", "b2"))
    directory = city.brokers["b1"]
    directory.connected(client, 5, False, True)
    moved = ClientMoved(client, 7, "b2", False, "", 1)
    assert directory.moved(moved, "b2") == [], "who waits, waits for the directory"
    directory.let_in(client)
    assert directory.moved(moved, "b2") == [SessionTaken(client, 7, "b2", False)]


def test_an_ended_session_is_forgotten() -> None:
    city = City()
    city.connect("b1", "ann", 1)
    city.run("b1", city.brokers["b1"].ended("ann"))
    assert city.connect("b2", "ann", 2) == [("b2", SessionFound("ann", 2, ""))]


def test_what_a_lost_directory_knew_is_known_again() -> None:
    for client in ("ann", "bob", "cat", "dog", "eel"):
        city = City()
        city.connect("b1", client, 1)
        keeper = city.brokers["b1"].keeper_of(client)
        if keeper in ("b1", "b2"):
            continue
        city.lose(keeper)
        found = city.connect("b2", client, 2)
        assert ("b1", SessionTaken(client, 2, "b2", False)) in found


def test_after_a_split_the_later_connection_stays() -> None:
    city = City()
    for name in NAMES:  # everybody alone
        city.brokers[name].living((name,))
    for time_us, name in ((5, "b2"), (3, "b1")):
        city.brokers[name].connected("ann", time_us, False, False)
    city.living()
    assert city.done == [("b1", SessionTaken("ann", 5, "b2", False))]


def test_a_client_need_not_wait_for_a_directory_that_is_silent() -> None:
    city = City()
    client = next(name for name in "abcdefgh" if city.brokers["b1"].keeper_of(name) != "b1")
    city.alive = {"b1"}
    assert city.connect("b1", client, 1) == []
    assert city.brokers["b1"].unanswered(client) == [SessionFound(client, 1, "")]
    assert city.brokers["b1"].unanswered(client) == []


# --- users --------------------------------------------------------------------------------------------------------


def test_another_users_connect_is_refused_wherever_the_directory_is() -> None:
    for client in ("ann", "bob", "cat", "dog", "eel", "fox"):
        for clean in (False, True):
            city = City()
            city.connect("b1", client, 1, user="ann")
            assert city.connect("b2", client, 2, clean, "bob", True) == [("b2", SessionRefused(client, 2))]
            assert city.connect("b2", client, 3, clean, "", True) == [("b2", SessionRefused(client, 3))]
            found = city.connect("b3", client, 4, user="ann")
            assert ("b1", SessionTaken(client, 4, "b3", False)) in found
            assert ("b3", SessionFound(client, 4, "b1", 1)) in found
            assert city.connect("b1", client, 5, clean, "bob", True) == [("b1", SessionRefused(client, 5))]


def test_a_connect_with_a_slow_clock_does_not_win() -> None:
    for client in ("ann", "bob", "cat", "dog"):
        city = City()
        city.connect("b1", client, 1000, user="ann")
        assert city.connect("b2", client, 5, user="bob") == [("b2", SessionRefused(client, 5))]


def test_the_refused_leaves_no_trace() -> None:
    city = City()
    city.connect("b1", "ann", 1, user="ann")
    city.connect("b2", "ann", 2, user="bob")
    assert not city.brokers["b2"].has("ann")
    city.run("b1", city.brokers["b1"].ended("ann"))
    assert city.connect("b2", "ann", 3, user="bob") == [("b2", SessionFound("ann", 3, ""))]


def test_a_newcomer_that_replaces_ends_the_other_session() -> None:
    for client in ("ann", "bob", "cat", "dog"):
        city = City()
        city.connect("b1", client, 1, user="ann", replaces=True)
        found = city.connect("b2", client, 2, user="bob", replaces=True)
        assert sorted(found, key=str) == sorted(
            [("b1", SessionTaken(client, 2, "b2", False, True)), ("b2", SessionFound(client, 2, ""))], key=str
        )


def test_after_a_split_the_session_stays_that_was_opened_first() -> None:
    """Even if its owner connected last, and whoever tells the directory first."""
    for client in ("ann", "bob", "cat", "dog", "eel"):
        city = City()
        city.connect("b1", client, 1, user="ann")
        for name in NAMES:  # everybody alone
            city.brokers[name].living((name,))
        refused = city.brokers["b3"].connected(client, 5, False, False, "bob")  # by a directory that remembers
        city.brokers["b1"].connected(client, 9, False, False, "ann", 1)
        city.living()
        if city.brokers["b1"].keeper_of(client) == "b3":
            assert refused == [SessionTaken(client, 1, "b1", False, True)]
            assert city.done == []
        else:
            assert city.done == [("b3", SessionTaken(client, 9, "b1", False, True))]
        assert city.connect("b4", client, 10, user="bob") == [("b4", SessionRefused(client, 10))]


def test_a_session_that_moved_is_as_old_as_before() -> None:
    city = City()
    city.connect("b1", "ann", 1, user="ann")
    city.connect("b2", "ann", 7, user="ann")
    city.brokers["b2"].opened("ann", 1, 0)
    for name in NAMES:
        city.brokers[name].living((name,))
    city.brokers["b3"].connected("ann", 5, False, False, "bob")
    city.living()
    assert city.done == [("b3", SessionTaken("ann", 7, "b2", False, True))]


def test_a_client_that_got_in_unasked_leaves_when_the_owner_is_known() -> None:
    city = City()
    client = next(name for name in "abcdefgh" if city.brokers["b1"].keeper_of(name) == "b4")
    city.connect("b1", client, 1, user="ann")
    city.alive.discard("b4")
    city.connect("b2", client, 2, user="bob")
    assert city.brokers["b2"].unanswered(client) == [SessionFound(client, 2, "")]
    city.living()
    assert ("b2", SessionTaken(client, 1, "b1", False, True)) in city.done


def test_a_move_that_a_dead_link_swallowed_is_told_again() -> None:
    up = {"b1"}
    keeper = Directory("b0", ("b0",), HybridClock(), up)
    keeper.claimed("b1", ClientClaim("c", 10, False, False))
    told = keeper.connected("c", 20, False, False)
    moved = [effect for effect in told if isinstance(effect, Send) and isinstance(effect.frame, ClientMoved)]
    assert [effect.peer for effect in moved] == ["b1"]
    assert moved[0] in keeper.reconnected("b1")
    assert moved[0] in keeper.reconnected("b1"), "the next link may be dead, too"


def test_who_was_let_in_without_an_answer_is_found_past_its_directory() -> None:
    city = City()
    keeper = city.brokers["b1"].keeper_of("c")
    old, new = [name for name in NAMES if name != keeper][:2]
    city.alive.discard(keeper)  # it hears nothing, and nobody knows yet
    city.connect(old, "c", 1)
    city.run(old, city.brokers[old].unanswered("c"))
    city.run(old, city.brokers[old].told_to("c", NAMES))
    assert (old, SessionTaken("c", 2, new, False, False)) in city.connect(new, "c", 2)


def test_who_is_told_past_the_directory_gives_nothing_to_another_user() -> None:
    city = City()
    keeper = city.brokers["b1"].keeper_of("c")
    old, new = [name for name in NAMES if name != keeper][:2]
    city.connect(old, "c", 1, user="alice")
    city.connect(new, "c", 2, user="mallory", asks=False)
    city.done = []
    city.run(new, city.brokers[new].told_to("c", NAMES))
    assert not [effect for at, effect in city.done if at == old]


def test_who_waits_for_its_directory_is_not_decided_on_by_others() -> None:
    """Neither by another user, who may have come first, nor by its own later try: the directory may refuse both."""
    for user in ("mallory", "alice"):
        city = City()
        keeper = city.brokers["b1"].keeper_of("c")
        one, other = [name for name in NAMES if name != keeper][:2]
        city.alive.discard(keeper)
        city.connect(one, "c", 2, user="alice")  # its answer is still to come
        city.connect(other, "c", 1 if user == "mallory" else 3, user=user)
        city.done = []
        city.run(other, city.brokers[other].told_to("c", [one]))
        assert city.done == []
