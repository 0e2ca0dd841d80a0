"""What the hub, the federation and the access list can do with a connection, whatever it is made of."""

from metromq.protocol.session.output import ClientOutput


class NetworkConnection:
    """A client's or a peer's network connection, from the broker's side; `Connection` is the one there is."""

    def __init__(self, output: ClientOutput) -> None:
        self.output = output
        self.link_offer = ""  # a peer's: which versions of the link it reads, in its own words
        self.slot = 0  # when it is looked at next (see Connections)

    def proceed(self) -> None:
        """Lets a client in that was held back."""
        raise NotImplementedError

    def refuse(self, reason_code: int, reason: str, server_reference: str = "") -> None:
        """Answers CONNECT with an error, and ends the connection."""
        raise NotImplementedError

    def terminate(self, reason_code: int, reason: str, server_reference: str = "") -> None:
        """Ends the connection from the server's side."""
        raise NotImplementedError

    def shut(self, reason: str) -> None:
        """Ends the connection without a word; what was written before still leaves."""
        raise NotImplementedError

    def check(self) -> float:
        """Ends what has taken too long; returns the moment at which it will have, if nothing happens; 0: never."""
        raise NotImplementedError

    def lost(self, clean: bool = False) -> None:
        """The network connection is gone."""
        raise NotImplementedError

    def permissions_changed(self) -> None:
        """The access list was read again."""
        raise NotImplementedError
