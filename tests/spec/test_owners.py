"""A session belongs to the user who opened it: nobody else gets its messages, ends it or disturbs its connection."""

import pytest

from metromq.protocol import reasons
from metromq.protocol.packing import Unpacker
from metromq.protocol.session import records, store
from metromq.protocol.session.access import Access, AccessDecision
from metromq.protocol.session.hub_settings import HubSettings
from metromq.protocol.session.session import Session
from metromq.protocol.wire.packets import (
    MQTT5,
    MQTT311,
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    Ack,
    Connack,
    Connect,
    Publish,
    Will,
)
from tests.spec.test_late_decisions import Slow
from tests.spec.world import VERSIONS, Client, World, bits

FOREIGNERS = [None, "bob", "Ann", "ann "]  # None: anonymous
NEW_SESSION = HubSettings(foreign_client_id_replaces=True)


def enter(
    world: World,
    user: str | None,
    version: int = MQTT5,
    clean: bool = False,
    will: Will | None = None,
    client_id: str = "a",
    expiry_s: int = 1000,
) -> Client:
    """A client that has sent CONNECT as `user`; the answer is in `connack`."""
    client = world.client()
    properties = bits(session_expiry_s=expiry_s) if version == MQTT5 else bits()
    password = b"x" if user is not None else None
    client.send(Connect(client_id, version, clean, 0, user, password, will, properties))
    found = [packet for packet in client.inbox if isinstance(packet, Connack)]
    if found:
        client.connack = found[0]
        client.inbox.remove(found[0])
    return client


def away(world: World, user: str | None = "ann", qos: int = 1) -> None:
    """A session of the user `a` that waits with one message."""
    owner = enter(world, user)
    owner.subscribe("t/#", qos=qos)
    owner.disconnect()
    world.connect("p").deliver("t/1", b"for the owner", qos)


def refused(client: Client) -> bool:
    assert not client.inbox
    code = client.raw[3]
    return client.closed and code == (reasons.CLIENT_IDENTIFIER_NOT_VALID if client.version == MQTT5 else 2)


# --- refused ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("foreigner", FOREIGNERS)
def test_a_session_that_waits_is_not_given_to_another_user(foreigner: str | None, version: int, clean: bool) -> None:
    world = World()
    away(world)
    assert refused(enter(world, foreigner, version, clean))
    owner = enter(world, "ann")
    assert owner.connack.session_present
    assert owner.payloads() == [b"for the owner"]


@pytest.mark.parametrize("journal", [False, True])
@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("foreigner", FOREIGNERS)
def test_a_connection_is_not_taken_over_by_another_user(foreigner: str | None, clean: bool, journal: bool) -> None:
    """[MQTT-3.1.4-3] is for the same client; another user's is none of the server's clients yet."""
    world = World(journal=journal)
    watcher = world.connect("watcher")
    watcher.subscribe("will/#")
    owner = enter(world, "ann", will=Will("will/a", b"gone"))
    owner.subscribe("t/#", qos=1)
    assert refused(enter(world, foreigner, clean=clean))
    assert not owner.closed
    world.connect("p").deliver("t/1", b"still here", 1)
    assert owner.payloads() == [b"still here"]
    assert watcher.messages() == []
    owner.drop()
    assert watcher.payloads() == [b"gone"]


def test_a_session_without_a_user_is_not_given_to_one() -> None:
    world = World()
    away(world, None)
    assert refused(enter(world, "bob"))
    assert enter(world, None).payloads() == [b"for the owner"]


def test_a_session_that_ends_with_its_connection_is_its_users_until_then() -> None:
    world = World()
    owner = enter(world, "ann", clean=True, expiry_s=0)
    assert refused(enter(world, "bob", clean=True))
    owner.disconnect()
    assert enter(world, "bob").connack.reason_code == 0


def test_a_session_that_has_expired_belongs_to_nobody() -> None:
    world = World()
    away(world)
    world.advance(1001)
    newcomer = enter(world, "bob")
    assert (newcomer.connack.reason_code, newcomer.connack.session_present) == (0, False)
    assert newcomer.messages() == []


@pytest.mark.parametrize("snapshot", [False, True])
@pytest.mark.parametrize("foreigner", FOREIGNERS)
def test_the_owner_survives_a_crash(foreigner: str | None, snapshot: bool) -> None:
    world = World()
    away(world)
    if snapshot:
        world.take_snapshot()
    world.crash()
    assert refused(enter(world, foreigner))
    assert refused(enter(world, foreigner, clean=True))
    assert enter(world, "ann").payloads() == [b"for the owner"]


def test_the_same_user_takes_over_as_ever() -> None:
    world = World()
    first = enter(world, "ann")
    second = enter(world, "ann")
    assert second.connack.session_present
    assert first.disconnected() == reasons.SESSION_TAKEN_OVER


def test_a_clean_start_that_waits_for_the_journal_is_not_replaced_by_another_user() -> None:
    world = World()
    away(world)
    world.auto_commit = False
    owner = enter(world, "ann", clean=True)
    assert not owner.raw
    assert refused(enter(world, "bob", clean=True))
    assert refused(enter(world, "bob"))
    world.auto_commit = True
    world.settle()
    assert owner.raw[0] == 0x20
    assert not owner.closed


def test_assigned_identifiers_belong_to_their_users() -> None:
    world = World()
    owner = enter(world, "ann", client_id="")
    assigned = owner.connack.properties.assigned_client_id
    assert assigned
    assert refused(enter(world, "bob", client_id=assigned))
    assert enter(world, "ann", client_id=assigned).connack.session_present


@pytest.mark.parametrize("version", [MQTT311, MQTT5])
def test_the_authenticated_name_counts_not_the_claimed_one(version: int) -> None:
    """Certificates, exchanges and late authenticators may all answer with another name than CONNECT's."""

    class Renamed(Access):
        user = "ann"

        def connect(self, *asked: object) -> AccessDecision:
            return AccessDecision(0, "", self.user)

    access = Renamed()
    world = World(access=access)
    away(world, "whoever")
    access.user = "bob"
    assert refused(enter(world, "whoever", version))
    access.user = "ann"
    assert enter(world, "someone else").payloads() == [b"for the owner"]


def test_an_owner_who_comes_while_another_waits_for_its_authenticator() -> None:
    """Who is decided on first has the identifier; the other is judged when its own decision comes."""
    slow = Slow()
    world = World(access=slow)
    foreigner = enter(world, "bob")
    owner = enter(world, "ann")
    for question, user in ((slow.questions[1], "ann"), (slow.questions[0], "bob")):
        assert question.connection is not None
        question.connection.decide(AccessDecision(0, "", user))
        world.settle()
    owner.one(Connack)
    foreigner.inbox.clear()
    assert refused(foreigner)
    owner.ping()


# --- a new session instead ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("journal", [False, True])
@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("foreigner", FOREIGNERS)
def test_another_user_may_get_a_session_of_their_own(foreigner: str | None, clean: bool, journal: bool) -> None:
    world = World(NEW_SESSION, journal)
    watcher = world.connect("watcher")
    watcher.subscribe("will/#")
    owner = enter(world, "ann", will=Will("will/a", b"gone"))
    owner.subscribe("t/#", qos=1)
    newcomer = enter(world, foreigner, clean=clean)
    assert (newcomer.connack.reason_code, newcomer.connack.session_present) == (0, False)
    assert owner.disconnected() == reasons.SESSION_TAKEN_OVER
    assert watcher.payloads() == [b"gone"]
    world.connect("p").deliver("t/1", b"for ann", 1)
    newcomer.ping()
    if journal:
        world.crash()
        again = enter(world, foreigner)
        assert again.connack.session_present
        assert again.messages() == []


def test_a_queue_is_dropped_with_its_session_not_delivered() -> None:
    world = World(NEW_SESSION)
    away(world)
    newcomer = enter(world, "bob")
    assert (newcomer.connack.reason_code, newcomer.connack.session_present) == (0, False)
    assert newcomer.messages() == []
    newcomer.disconnect()
    owner = enter(world, "ann")
    assert not owner.connack.session_present
    assert owner.messages() == []


# --- rights that change -------------------------------------------------------------------------------------------


class Changing(Access):
    """Nobody reads topics below the prefixes in `closed`."""

    def __init__(self) -> None:
        self.closed: tuple[str, ...] = ()

    def may_read(self, session: Session, topic: str) -> bool:
        return not topic.startswith(self.closed) if self.closed else True


def change(world: World, access: Changing, *closed: str) -> None:
    """What a reload does."""
    access.closed = closed
    world.hub.rights_changed()
    world.settle()


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("crash", [False, True])
def test_what_waits_is_checked_again_when_the_session_is_resumed(qos: int, crash: bool) -> None:
    access = Changing()
    world = World(access=access)
    owner = enter(world, "ann")
    owner.subscribe("#", qos=qos)
    owner.disconnect()
    publisher = world.connect("p")
    for number in range(4):
        publisher.deliver(f"{'secret' if number % 2 else 'open'}/{number}", b"%d" % number, qos)
    if crash:
        world.crash()
    access.closed = ("secret/",)
    owner = enter(world, "ann")
    came = owner.take()
    messages = [packet for packet in came if isinstance(packet, Publish)]
    assert [message.payload for message in messages] == [b"0", b"2"]
    for message in messages:
        owner.send(Ack(PUBACK if qos == 1 else PUBREC, message.packet_id))
    releases = [packet for packet in came + owner.take() if isinstance(packet, Ack)]
    for release in releases:
        owner.send(Ack(PUBCOMP, release.packet_id))
    assert not world.hub.sessions.by_client_id["a"].backlog.waiting()
    assert not world.hub.sessions.by_client_id["a"].backlog.inflight
    access.closed = ()
    world.crash()
    assert enter(world, "ann").messages() == []


def test_what_waits_in_the_journal_is_checked_too() -> None:
    access = Changing()
    world = World(HubSettings(memory_entries=2), access=access)
    owner = enter(world, "ann")
    owner.subscribe("#", qos=1)
    owner.disconnect()
    publisher = world.connect("p")
    for number in range(20):
        publisher.deliver(f"{'secret' if number % 2 else 'open'}/{number}", b"%d" % number, 1)
    access.closed = ("secret/",)
    assert enter(world, "ann").payloads() == [b"%d" % number for number in range(0, 20, 2)]


def test_what_waits_for_a_connected_client_is_checked_after_a_change() -> None:
    access = Changing()
    world = World(access=access)
    owner = world.connect("a", properties=bits(receive_maximum=1))
    owner.subscribe("#", qos=1)
    publisher = world.connect("p")
    for number in range(4):
        publisher.deliver(f"{'secret' if number % 2 else 'open'}/{number}", b"%d" % number, 1)
    [first] = owner.messages()
    change(world, access, "secret/")
    owner.answer(first)
    [second] = owner.messages()
    assert (first.payload, second.payload) == (b"0", b"2")
    owner.answer(second)
    assert owner.messages() == []
    publisher.deliver("secret/4", b"4", 1)
    publisher.deliver("secret/4", b"4")
    publisher.deliver("open/5", b"5", 1)
    assert owner.payloads() == [b"5"]


@pytest.mark.parametrize("crash", [False, True])
def test_an_exchange_of_qos_2_on_a_closed_topic_is_ended_without_the_message(crash: bool) -> None:
    """The client may have it already, and must forget its packet identifier before another message uses it."""
    access = Changing()
    world = World(access=access)
    owner = enter(world, "ann")
    owner.subscribe("#", qos=2)
    world.connect("p").deliver("secret/1", b"1", 2)
    [message] = owner.messages()
    owner.drop()
    if crash:
        world.crash()
    access.closed = ("secret/",)
    owner = enter(world, "ann")
    release = owner.one(Ack)
    assert (release.kind, release.packet_id) == (PUBREL, message.packet_id)
    owner.send(Ack(PUBCOMP, message.packet_id))
    assert not world.hub.sessions.by_client_id["a"].backlog.inflight


# --- older journals -----------------------------------------------------------------------------------------------


NEWER_BYTES = 54  # of a session: what has been recorded since releases that know the owner, but not since when


@pytest.mark.parametrize("snapshot", [False, True])
def test_a_journal_of_an_older_release_has_the_owner(snapshot: bool) -> None:
    """It does not say since when: then the session counts as older than any other."""
    world = World()
    away(world)
    assert world.hub.sessions.by_client_id["a"].opened_us == world.wall_us()
    session = world.hub.sessions.by_client_id["a"]
    older = store.pack_session(session)[:-NEWER_BYTES]
    read = Session(session.backlog.number, "a")
    reader = Unpacker(older)
    reader.u32()
    reader.text()
    store.unpack_session(read, reader)
    assert (read.username, read.opened_us, read.expiry_s) == ("ann", 0, 1000)
    assert world.log is not None
    world.log.records = [
        (kind, offset, body[:-NEWER_BYTES] if kind == records.SESSION_OPENED else body)
        for kind, offset, body in world.log.records
    ]
    world.crash()
    assert world.hub.sessions.by_client_id["a"].opened_us == 0
    if snapshot:
        world.take_snapshot()
        world.crash()
    assert refused(enter(world, "bob"))
    assert enter(world, "ann").payloads() == [b"for the owner"]
