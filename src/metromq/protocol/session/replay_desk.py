"""Who answers clients that ask for a replay; the base class is a broker where replay is off."""

from typing import Final, final

from mypy_extensions import mypyc_attr

from metromq.errors import ProtocolViolation
from metromq.protocol import reasons
from metromq.protocol.replay import OFF, FetchAnswer, encode_answer, failed
from metromq.protocol.session.network_connection import NetworkConnection
from metromq.protocol.session.session import Session
from metromq.protocol.wire.encoding import encode_publish
from metromq.protocol.wire.packets import Properties, Publish, Subscription
from metromq.protocol.wire.properties import decode_raw, encode_raw

IS_OFF: Final = "replay is off at this broker: set enabled = true under [replay] in its configuration"


@final
class Refusal:
    """Why a SUBSCRIBE to a replay is not granted."""

    def __init__(self, reason_code: int, text: str) -> None:
        self.reason_code = reason_code
        self.text = text


@final
class Asker:
    """The connection that sent a request, and how it wants to be answered."""

    def __init__(self, connection: NetworkConnection, publish: Publish) -> None:
        properties = decode_raw(publish.properties)
        self.connection = connection
        self.topic = (properties.response_topic or "").encode()
        if not self.topic:
            raise ProtocolViolation("a request for a replay needs a Response Topic, to which it is answered")
        self._properties = b""
        if properties.correlation_data is not None:
            self._properties = encode_raw(Properties(correlation_data=properties.correlation_data))

    def answer(self, payload: bytes) -> None:
        """Straight to the connection: nobody else can listen, whoever subscribes to what."""
        output = self.connection.output
        output.write(encode_publish(output.version, self.topic, payload, 0, False, False, 0, self._properties))

    def refuse(self, answer: FetchAnswer) -> None:
        self.answer(encode_answer(answer))


@mypyc_attr(allow_interpreted_subclasses=True)
class ReplayDesk:
    """The hub asks it; the shell has one that reads the journal."""

    def subscribe(
        self, connection: NetworkConnection, session: Session, wanted: Subscription, identifier: int
    ) -> Refusal | None:
        """A client wants a replay, and what comes after it; None: it will get it, at QoS 0."""
        return Refusal(reasons.NOT_AUTHORIZED, IS_OFF)

    def unsubscribe(self, session: Session, full_filter: str) -> bool:
        """Ends a replay and what follows it; False: there is none."""
        return False

    def fetch(self, connection: NetworkConnection, session: Session | None, publish: Publish) -> None:
        """Answers a request for records; without a session it is a peer broker that asks."""
        Asker(connection, publish).refuse(failed(OFF, IS_OFF))
