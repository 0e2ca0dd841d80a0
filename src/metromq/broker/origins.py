"""Which web pages may connect by WebSocket: a browser connects for any page, from inside its user's network."""

import ipaddress
from urllib.parse import SplitResult, urlsplit

from metromq.config import Listener


class Origins:
    """Pages of the host that is asked, and those of the setting; programs that are no browsers name no origin."""

    def __init__(self, listener: Listener) -> None:
        self._allowed = frozenset(origin.lower() for origin in listener.websocket_origins)
        self._is_loopback = listener.is_loopback

    def may_connect(self, origins: list[str], host: str) -> bool:
        """`origins` and `host` are what the request's headers say."""
        if not origins or "*" in self._allowed:
            return True
        return len(origins) == 1 and (origins[0].lower() in self._allowed or self._is_same_host(origins[0], host))

    def _is_same_host(self, origin: str, host: str) -> bool:
        page, asked = _split(origin), _split(f"//{host}")
        if page is None or asked is None or not page.scheme or page.hostname != asked.hostname:
            return False
        # Anybody can make a name of their own lead to this machine; pages of that name are not of this host.
        return not self._is_loopback or _is_own(page.hostname or "")


def _split(address: str) -> SplitResult | None:
    try:
        parts = urlsplit(address)
    except ValueError:
        return None
    return parts if parts.hostname else None


def _is_own(hostname: str) -> bool:
    try:
        return hostname == "localhost" or ipaddress.ip_address(hostname).is_loopback
    except ValueError:
        return False
