"""Where replays touch the hub: who answers when a client asks for one, and what becomes of live messages meanwhile."""

from mypy_extensions import mypyc_attr

from metromq.protocol.session.message import Message


@mypyc_attr(allow_interpreted_subclasses=True)
class LiveGate:
    """Stands before a session that asked for replays: live messages wait until what is older has been sent."""

    def __init__(self) -> None:
        self.is_holding = False  # messages wait here, so none may take the short way

    def takes(self, message: Message) -> bool:
        """A message that no subscription of the session's own asks for, only what follows a replay, at QoS 0.

        True: the gate has sent it, keeps it, or knows that it was sent.
        """
        return False
