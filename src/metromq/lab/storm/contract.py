"""The judge: knows docs/guarantees.md and what clients saw, and nothing of brokers.

Each rule yields breaches, sentences that name the client, the message and the promise.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Final

from metromq.lab.storm.seen import FOREVER, Delivered, Published, Seen, SeenConnection, Subscribed
from metromq.protocol.topics import matches, split_shared

ORDER_S: Final = 1.0  # so long a session that has moved waits for what is older and still under way
MENDED_S: Final = 5.0  # so long after a repair links and owners are as before
CUTS: Final = ("kill", "power", "tear", "revise", "pause", "cut", "split")
WATCHER: Final = "watch"


class Contract:
    """It has many methods because each promise is a rule of its own, with its exceptions beside it."""

    def __init__(self, seen: Seen) -> None:
        self._seen = seen
        self._by_client: dict[str, list[SeenConnection]] = defaultdict(list)
        for connection in seen.connections:
            self._by_client[connection.client].append(connection)
        self._got: dict[str, dict[str, list[Delivered]]] = defaultdict(lambda: defaultdict(list))
        self._stored: set[tuple[str, str]] = set()  # client and payload of what came with RETAIN set
        for delivery in seen.delivered:
            if delivery.retain:
                self._stored.add((delivery.client, delivery.payload))
            if not delivery.retain and delivery.payload:
                self._got[delivery.client][delivery.payload].append(delivery)
        self._last_fault = max((at for at, _ in seen.faults), default=-1.0)
        self._troubles = troubles(seen)

    # Sessions, as clients know them.

    def _session_since(self, client: str, at: float) -> float:
        """When the durable session of a client began that it has at a time; FOREVER: it has none."""
        since = FOREVER
        for connection in self._by_client[client]:
            if connection.opened > at:
                continue  # later, or never
            if not connection.keeps:
                since = FOREVER
            elif since == FOREVER:
                since = connection.opened
        return since

    def _lasts(self, client: str, since: float) -> bool:
        """Whether the durable session goes on to the end."""
        later = [one for one in self._by_client[client] if one.asked > since]
        return all(one.keeps for one in later) and self._by_client[client][-1].ended == FOREVER

    def _is_sure(self, subscription: Subscribed, sent: float) -> bool:
        """Whether the client's session must get what was sent at a time."""
        if subscription.acked == FOREVER or subscription.ended < FOREVER:
            return False
        if subscription.acked + self._seen.lag_between(subscription.acked, sent) > sent:
            return False
        since = self._session_since(subscription.client, subscription.sent)
        return since < FOREVER and self._lasts(subscription.client, subscription.sent)

    # The rules.

    def breaches(self) -> Iterator[str]:
        if self._seen.stuck:
            yield f"rest: {self._seen.stuck}"
            return
        rules: tuple[Callable[[], Iterator[str]], ...] = (
            self._nothing_is_lost,
            self._nothing_comes_twice,
            self._groups_share,
            self._order_is_kept,
            self._retained_values_agree,
            self._newcomers_get_the_newest,
            self._one_session_each,
            self._clean_starts_void,
            self._wills_fire_once,
        )
        for rule in rules:
            yield from rule()

    def _plain(self) -> Iterator[tuple[Subscribed, str]]:
        for subscription in self._seen.subscriptions:
            share, topic_filter = split_shared(subscription.topic_filter)
            if not share:
                yield subscription, topic_filter

    def _nothing_is_lost(self) -> Iterator[str]:
        for subscription, topic_filter in self._plain():
            if not subscription.qos:
                continue
            for message in self._seen.published:
                if message.acked == FOREVER or not message.qos or not message.payload:
                    continue
                if not matches(topic_filter, message.topic) or not self._is_sure(subscription, message.sent):
                    continue
                is_stored = message.retain and (subscription.client, message.payload) in self._stored
                if self._may_be_forgotten(subscription.client, message):
                    continue
                if not is_stored and not self._got[subscription.client][message.payload]:
                    yield f"lost: {subscription.client} ({topic_filter}) never got {_shown(message)}"

    def _may_be_forgotten(self, client: str, message: Published) -> bool:
        """Whether the client forgot the message when it began anew elsewhere, before it was released.

        Its old broker, which cannot hear of that, releases it when the client is back there, or where the session goes.
        """
        known = [one for one in self._by_client[client] if message.sent < one.opened < FOREVER]
        anew = [one for one in known if not one.present]
        is_back = any(two.opened > one.opened and two.present and two.apart for one in anew for two in known)
        return is_back and (client, message.payload) in self._seen.forgotten

    def _nothing_comes_twice(self) -> Iterator[str]:
        sent = {message.payload: message for message in self._seen.published}
        for client, by_payload in self._got.items():
            for payload, deliveries in by_payload.items():
                message = sent.get(payload)
                exact = [delivery for delivery in deliveries if delivery.qos != 1]
                is_repeated = message is not None and self._may_repeat(message)  # others are wills
                if len(exact) < 2 or is_repeated or self._may_come_again(client, exact):
                    continue
                if message is not None and message.qos and self._is_undone(exact):
                    continue
                if message is not None and self._may_come_back(client, message, exact):
                    continue
                times = ", ".join(f"{delivery.at:.3f}" for delivery in exact)
                yield f"twice: {client} got {payload} at QoS {exact[-1].qos} at {times}"

    def _may_come_again(self, client: str, exact: list[Delivered]) -> bool:
        if self._restarts(client, exact[0].at, exact[-1].at) >= len(exact) - 1:  # each may bring it once more
            return True
        # It has no number by which a broker could know it that it reaches later than the client did.
        if all(not one.qos for one in exact) and self._moved(client, exact[0].at, exact[-1].at):
            return True
        # One part of a session that was apart had it at QoS 0, for the other it waited at QoS 2.
        return {one.qos for one in exact} == {0, 2} and self._is_merged(client, exact[0].at, exact[-1].at)

    def _is_undone(self, exact: list[Delivered]) -> bool:
        """Whether a crash may have undone each but the last in the moment in which it came, and was passed on at QoS 0.

        That does not wait for the journal, and whoever had sent it to the broker sends it again.
        """
        crashes = [at for at, what in self._seen.faults if what.split()[1] in ("kill", "power", "tear")]
        return all(not one.qos and any(abs(at - one.at) <= self._seen.lag_s for at in crashes) for one in exact[:-1])

    def _moved(self, client: str, start: float, end: float) -> bool:
        """Whether the client went to another broker between two times."""
        known = [one for one in self._by_client[client] if one.opened < FOREVER]
        return any(two.broker != one.broker and start < two.opened <= end for one, two in pairwise(known))

    def _may_repeat(self, message: Published) -> bool:
        """Whether its publisher may have sent it as a new message once more: its session, too, may begin anew."""
        is_resent = message.qos == 1 and self._is_resent(message)
        return is_resent or message.again or self._restarts(message.client, message.sent, message.acked) > 0

    def _restarts(self, client: str, start: float, end: float, unasked: bool = False) -> int:
        """How often the client began anew between two times, or went on while its broker of before was away.

        `unasked`: not where it had asked for that, by a clean start or a session that ends with its connection.
        """
        return sum(
            1
            for before, one in pairwise([None, *self._by_client[client]])
            if one is not None
            and start < one.opened <= end
            and (one.apart or (not one.present and not (unasked and _is_asked_for(before, one))))
        )

    def _groups_share(self) -> Iterator[str]:
        groups: dict[str, list[Subscribed]] = defaultdict(list)
        for subscription in self._seen.subscriptions:
            if subscription.topic_filter.startswith("$share/"):
                groups[subscription.topic_filter].append(subscription)
        for group, members in groups.items():
            yield from self._group_shares(group, members, groups)

    def _group_shares(
        self, group: str, members: list[Subscribed], groups: dict[str, list[Subscribed]]
    ) -> Iterator[str]:
        _, topic_filter = split_shared(group)
        clients = {member.client for member in members}
        for message in self._seen.published:
            if not message.qos or not message.payload or not matches(topic_filter, message.topic):
                continue
            others = [name for name in groups if name != group and matches(split_shared(name)[1], message.topic)]
            most = 1 + sum(1 for name in others if clients & {member.client for member in groups[name]})
            got = [one for client in sorted(clients) for one in self._got[client][message.payload]]
            exact = [one for one in got if one.qos == 2]
            restarted = self._may_repeat(message) or any(
                self._restarts(one.client, message.sent, got[-1].at, True) for one in exact
            )
            is_excused = restarted or self._may_choose_again(message, exact, most)
            if len(exact) > most and not is_excused and not self._may_come_on(message, exact):
                takers = ", ".join(f"{one.client} at {one.at:.3f}" for one in exact)
                yield f"shared twice: {group} got {_shown(message)} {len(exact)} times: {takers}"
            is_sure = any(self._is_sure(one, message.sent) for one in members)
            is_forgotten = any(self._may_be_forgotten(client, message) for client in clients)
            is_left = is_forgotten or any(self._may_end_with(member, message) for member in members)
            if message.acked < FOREVER and not got and is_sure and not is_left:
                yield f"shared lost: nobody of {group} got {_shown(message)}"

    def _may_end_with(self, member: Subscribed, message: Published) -> bool:
        """Whether a member may have taken the message with it when its session ended.

        At QoS 2 that is what was sent to it, and so on its way when a connection ended [MQTT-4.8.2-5]; at any QoS what
        was on its way to a member without session expiry when its broker died.
        """
        connections = self._by_client[member.client]
        for number, one in enumerate(connections):
            later = connections[number + 1 :]
            following = self._accepted(later)
            is_half_open = bool(later) and one.ended == later[0].asked and not one.goodbye
            if following is None and one.ended < FOREVER and (one.keeps or is_half_open):
                return True  # nobody has ended the session, and its client did not come back: it waits there
            since, over = one.opened if one.opened < FOREVER else one.asked, one.ended
            if is_half_open and following is not None:
                over = following.opened
            if over < FOREVER:
                over = self._heard(over)
            has_ended = not one.keeps or any(not other.keeps for other in later)
            if min(message.qos, member.qos) == 2 and has_ended and self._is_on_its_way(message, since, one.ended, over):
                return True
            died = [at for at, broker in self._seen.deaths if broker == one.broker and one.asked <= at <= over]
            if not one.keeps and any(self._is_on_its_way(message, since, at, at + self._seen.lag_s) for at in died):
                return True
        return False

    def _accepted(self, connections: list[SeenConnection]) -> SeenConnection | None:
        """The first that counted as later than those before it."""
        known = (one for one in connections if one.opened < FOREVER and not self._may_seem_older(one))
        return next(known, None)

    def _heard(self, at: float) -> float:
        """When a client's broker surely knew that its connection was over."""
        heard = at + self._seen.lag_between(at, at)
        return self._calm_after(heard) if self._is_troubled(at, heard) else heard

    def _may_come_back(self, client: str, message: Published, exact: list[Delivered]) -> bool:
        """Whether a group's message may have gone to another member too, since an owner could not be heard, and come
        on from there to this one, when that member's session ended."""
        asked = [one for one in self._seen.subscriptions if one.topic_filter.startswith("$share/")]
        groups = {
            one.topic_filter
            for one in asked
            if one.client == client and matches(split_shared(one.topic_filter)[1], message.topic)
        }
        others = {one.client for one in asked if one.client != client and one.topic_filter in groups}
        has_ended = any(
            not one.keeps and (message.sent < one.asked or message.sent < one.ended < FOREVER)
            for other in others
            for one in self._by_client[other]
        )
        return has_ended and len(exact) == 2 and self._has_unheard_owner(message)

    def _may_come_on(self, message: Published, exact: list[Delivered]) -> bool:
        """The same for what a whole group got; and two members may have it, if one was forgotten with its broker."""
        clients = {one.client for one in exact}
        in_order = sorted(exact, key=lambda one: one.at)
        if len(clients) == 1:
            return self._may_come_back(exact[0].client, message, exact)
        return len(exact) == 2 and self._ended_with_its_broker(in_order)

    def _ended_with_its_broker(self, exact: list[Delivered]) -> bool:
        """Whether a member without session expiry had it, of which its broker knows nothing since it died."""
        return any(
            not one.keeps and one.broker == broker and one.opened <= had.at <= one.ended and had.at <= at
            for had in exact[:-1]
            for one in self._by_client[had.client]
            for at, broker in self._seen.deaths
            if at < exact[-1].at
        )

    def _is_on_its_way(self, message: Published, since: float, ended: float, over: float) -> bool:
        """Whether it may have been sent over a connection, open since a time, and not confirmed when that ended.

        In calm it takes two links and the disks to the member, and as much for what it answers at QoS 2.
        """
        start = max(message.sent, since)
        is_held_up = any(begun < ended and until >= message.sent for begun, until in self._troubles)
        return message.sent <= over and (is_held_up or ended <= start + 3 * self._seen.lag_between(start, start))

    def _may_choose_again(self, message: Published, exact: list[Delivered], most: int) -> bool:
        """Whether the owner of the topic may have chosen a member, and whoever stands in for it cannot know.

        Its acknowledgement was lost, so something was broken when the message was sent; two members have it, once each.
        """
        is_one_each = len(exact) == most + 1 == len({one.client for one in exact})
        return is_one_each and self._has_unheard_owner(message)

    def _has_unheard_owner(self, message: Published) -> bool:
        over = message.sent + self._seen.lag_between(message.sent, message.sent)
        if self._seen.routing == "delegation":
            return self._is_cut_short(message.sent, over)
        has_owner = self._seen.routing == "geographic" and message.topic[0].isdigit()
        return has_owner and self._is_troubled(message.sent, over)

    def _is_cut_short(self, start: float, end: float) -> bool:
        """Whether a broker or a link was lost between two times, or later, when what it said then was held up still."""
        faults = [(at, text.split()[1], text.split()[2:]) for at, text in self._seen.faults]
        healed = [at for at, text in self._seen.mends if text.split()[1] == "heal"]
        held = {
            (words[0], min((one for one in healed if one > at), default=FOREVER))
            for at, verb, words in faults
            if verb == "hold" and at <= end and not any(at < one < start for one in healed)
        }
        cuts = [(at, words) for at, verb, words in faults if verb in CUTS and at >= start]
        return any(at <= end or any(at <= until and name in words for name, until in held) for at, words in cuts)

    def _order_is_kept(self) -> Iterator[str]:
        kept = [message for message in self._seen.published if message.payload and not self._is_resent(message)]
        sent = {message.payload: message for message in kept}
        for client, by_payload in self._got.items():
            firsts = sorted(
                (deliveries[0] for payload, deliveries in by_payload.items() if payload in sent and deliveries),
                key=lambda delivery: delivery.at,
            )
            newest: dict[tuple[str, str, str, int, int], Published] = {}
            for delivery in firsts:
                message = sent[delivery.payload]
                stream = (message.client, message.broker, message.topic, message.qos, delivery.qos)
                before = newest.get(stream)
                if before is not None and before.number > message.number:
                    if not self._may_be_late(client, message, delivery):
                        yield f"order: {client} got {before.payload} before {_shown(message)}"
                else:
                    newest[stream] = message

    def _is_resent(self, message: Published) -> bool:
        """Whether its publisher may have sent it again over another connection: there it has another place."""
        return any(message.sent <= one.asked < message.acked for one in self._by_client[message.client])

    def _may_be_late(self, client: str, message: Published, delivery: Delivered) -> bool:
        """The exceptions to order that the contract lists."""
        if self._is_member(client) or self._is_merged(client, message.sent, delivery.at):
            return True
        if self._is_from_before(client, message) or (not delivery.qos and self._moved_about(client, message.sent)):
            return True
        if any(begun <= delivery.at and over >= message.sent for begun, over in self._seen.reroutes):
            return True  # it went by the old routing
        if self._seen.routing == "delegation" or (self._seen.routing == "geographic" and message.topic[0].isdigit()):
            return self._is_troubled(message.sent, delivery.at)  # it may have had another owner meanwhile
        if self._seen.routing == "overlay" and self._is_troubled(message.sent, delivery.at):
            return True  # the way through clusters may have been another one
        # Who has not heard of a move yet sends to the broker of before, also what comes just after it.
        moves = [(begin, end, end + self._seen.lag_between(end, message.sent)) for begin, end in self._moves(client)]
        moved = [end for begin, end, heard in moves if begin <= delivery.at and message.sent <= heard]
        return any(self._is_troubled(message.sent, end + ORDER_S) for end in moved)

    def _moved_about(self, client: str, sent: float) -> bool:
        """Whether it moved just when something was sent: at QoS 0 it may miss that, and get it with another session."""
        lag_s = self._seen.lag_between(sent, sent)
        return any(begin - lag_s <= sent <= end + lag_s for begin, end in self._moves(client))

    def _is_from_before(self, client: str, message: Published) -> bool:
        """Whether the client had not subscribed when it was sent: another session has brought it to the broker."""
        asked = [one for one in self._seen.subscriptions if one.client == client]
        return not any(one.sent <= message.sent and matches(one.topic_filter, message.topic) for one in asked)

    def _moves(self, client: str) -> list[tuple[float, float]]:
        """When the client asked another broker than before, and when that one let it in: until then the session came.

        If it did not, the time of asking stands for both; who then asks the same broker again is moving still.
        """
        begin = FOREVER
        moves: list[tuple[float, float]] = []
        for one, two in pairwise(self._by_client[client]):
            if one.broker != two.broker:
                begin = two.asked
            elif one.opened < FOREVER:
                begin = FOREVER
            if begin < FOREVER:
                moves.append((begin, two.opened if two.opened < FOREVER else two.asked))
        return moves

    def _is_troubled(self, start: float, end: float) -> bool:
        return any(begun <= end and over >= start for begun, over in self._troubles)

    def _is_merged(self, client: str, sent: float, at: float) -> bool:
        """Whether the client had begun anew while its session was away: what that one brings has no place before."""
        opened = [one for one in self._by_client[client] if one.opened < at]
        apart = [one for one in opened[1:] if one.keeps and (not one.present or one.apart)]
        return any(sent <= self._calm_after(one.opened) for one in apart)

    def _calm_after(self, at: float) -> float:
        """When all is mended that was broken then; what breaks again before that goes on with it."""
        end = max((over for begun, over in self._troubles if begun <= at <= over), default=at)
        for begun, over in sorted(self._troubles):
            if begun <= end + MENDED_S:
                end = max(end, over)
        return end + MENDED_S

    def _is_member(self, client: str) -> bool:
        """Members of shared subscriptions: messages pass from one to another, so their order is not promised."""
        return any(one.client == client and one.topic_filter.startswith("$share/") for one in self._seen.subscriptions)

    def _retained_values_agree(self) -> Iterator[str]:
        values = {broker: dict(sorted(probe.items())) for broker, probe in self._seen.probes.items()}
        if len({str(value) for value in values.values()}) > 1:
            yield f"retained: newcomers get different values: {values}"
            return
        for broker, probe in values.items():
            for topic in {message.topic for message in self._seen.published if message.retain}:
                allowed = self._may_be_retained(topic)
                if probe.get(topic, "") not in allowed:
                    yield f"retained: {broker} serves {probe.get(topic)!r} on {topic}, not one of {sorted(allowed)}"

    def _may_be_retained(self, topic: str) -> set[str]:
        """The values that nothing surely replaced: a later one, acknowledged, when nothing was broken between."""
        writes = [message for message in self._seen.published if message.retain and message.topic == topic]
        allowed = {"" if not writes else writes[0].payload, ""} if not writes else set()
        # A link that was slow in one direction made brokers believe in wrong clocks, and time does not go back.
        is_wrong = any(what.split()[1] in ("slow", "hold") for _, what in self._seen.faults)
        error_s = self._seen.lag_s if is_wrong else 0.0
        for number, write in enumerate(writes):
            later = [one for one in writes[number + 1 :] if one.acked < FOREVER and one.qos]
            replaced = any(one.sent > write.acked + error_s and one.sent > self._last_fault + 5.0 for one in later)
            if not replaced:
                allowed.add(write.payload)
        if not any(write.acked < FOREVER and write.qos for write in writes):
            allowed.add("")
        return allowed

    def _newcomers_get_the_newest(self) -> Iterator[str]:
        writes = {message.payload: message for message in self._seen.published if message.retain and message.payload}
        for delivery in self._seen.delivered:
            write = writes.get(delivery.payload) if delivery.retain else None
            asked = self._asked_for(delivery) if write is not None else None
            if write is None or asked is None or self._is_troubled(write.sent, delivery.at):
                continue
            for later in self._seen.published:
                if later.retain and later.qos and self._is_told(later, asked) and _replaces(later, write):
                    got = f"{delivery.client} subscribed at {asked.sent:.3f} and got {_shown(write)}"
                    yield f"retained: {got}, which {_shown(later)} had replaced"
                    break

    def _is_told(self, value: Published, asked: Subscribed) -> bool:
        """Whether every broker knew of an acknowledged value when a client subscribed."""
        if value.acked >= asked.sent:
            return False
        return value.acked + self._seen.lag_between(value.acked, asked.sent) < asked.sent

    def _asked_for(self, delivery: Delivered) -> Subscribed | None:
        """The last subscription that a stored message can answer."""
        known = [
            one
            for one in self._seen.subscriptions
            if one.client == delivery.client and one.sent <= delivery.at and matches(one.topic_filter, delivery.topic)
        ]
        return known[-1] if known else None

    def _one_session_each(self) -> Iterator[str]:
        for client, brokers in self._seen.sessions.items():
            if len(brokers) > 1:
                yield f"sessions: {client} has one at each of {', '.join(brokers)}"

    def _clean_starts_void(self) -> Iterator[str]:
        for client, connections in self._by_client.items():
            deliveries = [one for one in self._seen.delivered if one.client == client]
            asked = [one for one in self._seen.subscriptions if one.client == client]
            for delivery in deliveries:
                begun = self._began_anew(connections, delivery.at)
                if begun < FOREVER and not any(_asks_for(one, delivery, begun) for one in asked):
                    what = f"{delivery.payload} ({delivery.topic})"
                    yield f"clean start: {client} began anew at {begun:.3f} and got {what} at {delivery.at:.3f}"

    def _began_anew(self, connections: list[SeenConnection], at: float) -> float:
        """When the client asked for the clean start behind which it is at a time; FOREVER: none, or nobody can know."""
        known = [one for one in connections if one.opened <= at]
        last = max((number for number, one in enumerate(known) if not one.keeps), default=-1)
        if last < 0 or any(one.apart for one in known[last + 1 :]):  # it may have gone on with an older session
            return FOREVER
        is_unheard = self._died_alone(known[last]) or self._may_seem_older(known[last])
        return FOREVER if is_unheard else known[last].asked

    def _died_alone(self, connection: SeenConnection) -> bool:
        """Whether its broker could not tell the one of before that the client had begun anew, and died."""
        died = [at for at, broker in self._seen.deaths if broker == connection.broker]
        return connection.apart and any(at >= connection.asked for at in died)

    def _wills_fire_once(self) -> Iterator[str]:
        for client, connections in self._by_client.items():
            for number, connection in enumerate(connections):
                if connection.will is None or connection.opened == FOREVER:
                    continue
                _, payload, delay_s = connection.will
                fired = [one for one in self._got[WATCHER][payload] if one.client == WATCHER]
                if len(fired) > 1:
                    yield f"will: {payload} of {client} fired {len(fired)} times"
                if connection.goodbye and fired and self._is_calm(connection):
                    yield f"will: {payload} of {client} fired though it said goodbye"
                following = connections[number + 1] if number + 1 < len(connections) else None
                if fired and following is not None and self._only_moved(connection, following, delay_s):
                    yield f"will: {payload} of {client} fired though it only went on at {following.broker}"
                # A CONNECT that nobody answered may have been accepted: what it ended stays ended.
                later = (one.opened if one.opened < FOREVER else one.asked for one in connections[number + 1 :])
                back = min(later, default=FOREVER)
                lost = connection.ended < FOREVER and not connection.goodbye
                lost = lost and not self._may_seem_older(connection)
                if lost and back > connection.ended + delay_s + 30.0 and not fired and self._is_calm(connection):
                    yield f"will: {payload} of {client} never fired"

    def _only_moved(self, connection: SeenConnection, following: SeenConnection, delay_s: float) -> bool:
        """Whether the client went on at another broker, or was back before the delay of its will was over."""
        if connection.goodbye or following.opened == FOREVER or not self._is_calm(connection, following.opened):
            return False
        if self._is_troubled(following.asked, following.opened):  # its broker of before may not hear of it
            return False
        if connection.ended == following.asked and connection.broker != following.broker:
            return True
        keeps = connection.keeps and following.keeps  # otherwise the session ends, and the will does not wait
        fires = connection.ended + delay_s
        return keeps and following.opened + self._seen.lag_between(following.opened, fires) < fires

    def _may_seem_older(self, connection: SeenConnection) -> bool:
        """Whether its broker stood still when the client came, and had since before the client came to another one.

        It cannot know how old the CONNECT is, and takes the other one for later.
        """
        before = [one for one in self._by_client[connection.client] if one.asked < connection.asked]
        others = [one for one in before if one.broker != connection.broker]
        return any(connection.still_since < (one.opened if one.opened < FOREVER else one.asked) for one in others)

    def _is_calm(self, connection: SeenConnection, until: float = 0.0) -> bool:
        end = max(connection.ended, until) + 10
        return not any(connection.asked - 10 <= at <= end for at, _ in self._seen.faults)


def _shown(message: Published) -> str:
    acked = f"{message.acked:.3f}" if message.acked < FOREVER else "never"
    return (
        f"{message.payload} ({message.client} at {message.broker}, {message.topic}, QoS {message.qos}, "
        f"sent {message.sent:.3f}, acknowledged {acked})"
    )


def _asks_for(subscription: Subscribed, delivery: Delivered, since: float) -> bool:
    """Whether the client asked for it since a time."""
    _, topic_filter = split_shared(subscription.topic_filter)
    return since <= subscription.sent <= delivery.at and matches(topic_filter, delivery.topic)


def _is_asked_for(before: SeenConnection | None, connection: SeenConnection) -> bool:
    """Whether the client wanted another session than it had before."""
    return not connection.keeps or (before is not None and not before.keeps)


def _replaces(later: Published, earlier: Published) -> bool:
    """Whether one value was surely set after another."""
    same = (later.client, later.broker) == (earlier.client, earlier.broker) and later.number > earlier.number
    return later.topic == earlier.topic and (later.sent > earlier.acked or same)


def troubles(seen: Seen) -> list[tuple[float, float]]:
    """From when to when something was broken, and for a while after."""
    broken: dict[str, None] = {}
    found: list[tuple[float, float]] = []
    begun = 0.0
    for at, text in sorted([*seen.faults, *seen.mends]):
        _, verb, *words = text.split()
        if verb == "leave":
            continue  # it breaks nothing, but wills do not wait longer than its clients may
        if verb == "revise":
            broken.pop(words[0], None)
            found.append((at, at + MENDED_S))
            continue
        if not broken:
            begun = at
        if verb in ("heal", "start", "resume", "rise"):
            for gone in [one for one in broken if one == " ".join(words)]:
                del broken[gone]
            if not broken and begun < at:
                found.append((begun, at + MENDED_S))
        else:
            broken[words[0] if verb in ("kill", "power", "tear", "pause", "fall") else ""] = None
    return [*found, (begun, FOREVER)] if broken else found


def judge(seen: Seen) -> list[str]:
    return list(Contract(seen).breaches())
