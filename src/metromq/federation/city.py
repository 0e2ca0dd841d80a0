"""A city: one choice on each axis, its sites and its brokers. `metromq.city_file` reads it from a TOML file."""

import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from heapq import nsmallest
from typing import Annotated, Literal, cast, get_args

from metromq.constraints import FilePath, Range, ReadableFile
from metromq.errors import UsageError
from metromq.protocol.topics import DIGITS, Box, all_areas, area_at, areas_within, centre_of

Attachment = Literal["nearest", "proxy", "redirect"]
Routing = Literal["central", "delegation", "flood-publications", "flood-subscriptions", "geographic", "overlay"]
Transport = Literal["unicast", "multicast"]
Coordination = Literal["embedded", "zookeeper"]
Placement = Literal["optimal", "greedy", "random"]
Takeover = Literal["nearest", "least-loaded"]
SiteKind = Literal["edge", "cloud"]

EARTH_RADIUS_KM = 6371.0
MOST_NEAR = 32  # neighbours of a broker that are remembered in their order
MOST_HOME_WORDS = 8_000  # characters; of a larger city nobody compares them by eye
CENTRAL_ROUTINGS = ("central", "delegation")  # those with a broker in the middle

Latitude = Annotated[float, Range(-90, 90)]
Longitude = Annotated[float, Range(-180, 180)]
Level = Annotated[int, Range(1, 12)]
Milliseconds = Annotated[int, Range(10, 600_000)]


@dataclass(frozen=True, slots=True)
class Square:
    """The bounding square of the city, in degrees; areas are cut from it."""

    south: Latitude = 0.0
    west: Longitude = 0.0
    north: Latitude = 1.0
    east: Longitude = 1.0

    def box(self) -> Box:
        return Box(self.south, self.west, self.north, self.east)

    def problems(self) -> Iterator[tuple[str, str]]:
        if self.south >= self.north:
            yield "north", f"must lie north of south = {self.south}"
        if self.west >= self.east:
            yield "east", f"must lie east of west = {self.west}"


@dataclass(frozen=True, slots=True)
class Areas:
    """How deep topics, brokers and clusters lie in the hierarchy of areas."""

    # Digits that a client's topic normally starts with.
    k: Level = 4
    # Digits of the area that one broker is responsible for.
    l_b: Level = 2
    # Digits that the brokers of one cluster share.
    l_c: Level = 1

    def problems(self) -> Iterator[tuple[str, str]]:
        if self.l_b > self.k:
            yield "l_b", f"must not exceed k = {self.k}"
        if self.l_c >= self.l_b:
            yield "l_c", f"must be less than l_b = {self.l_b}"


@dataclass(frozen=True, slots=True)
class Membership:
    """How brokers watch each other, and who stands in for one that is gone."""

    # Twice a second: a lost broker is replaced within two seconds, at a cost of a few frames a second.
    hello_interval_ms: Milliseconds = 500
    # Missing three in a row tells a lost broker from a lost packet.
    missed_hellos: Annotated[int, Range(2, 100)] = 3
    # Brokers of other clusters are greeted this much more rarely; the paper greets only inside the cluster.
    far_factor: Annotated[int, Range(1, 100)] = 4
    takeover: Takeover = "nearest"
    # Larger cities have no link between every two brokers: each greets eight, and opens others when it needs them.
    mesh_up_to: Annotated[int, Range(0, 10_000)] = 16
    # Filters of others that a broker should have to know: who has more than its part announces prefixes. 0: all.
    interest_entries: Annotated[int, Range(0, 100_000_000)] = 100_000
    # Clocks that are further apart are warned about: times in the lake and expiry after a restart need them.
    clock_warning_ms: Milliseconds = 1000


@dataclass(frozen=True, slots=True)
class OverlaySettings:
    """How routing = "overlay" clusters the brokers that publish a topic."""

    # A publisher's broker joins a cluster only if its members are so near on average: the paper's MAX_DISTANCE.
    max_distance_km: Annotated[float, Range(0, 20_100)] = 10.0
    # How much the load of a broker counts against what it has in common with a subscriber's: the paper's beta.
    beta: Annotated[float, Range(0, 100)] = 0.5
    # Of so many topics a broker publishes, and gets from others, along clusters; further ones go straight.
    max_topics: Annotated[int, Range(0, 10_000_000)] = 10_000
    # A broker leaves the clusters of a topic that its clients have not published for so long, or up to twice as long:
    # an hour, so that what comes daily stays out of the way and what comes every minute keeps its ways. 0: never.
    idle_s: Annotated[int, Range(0, 10_000_000)] = 3600
    # A broker sends messages straight to so many others at the most, and to the rest through them: fewer connections,
    # longer ways. 0: clusters and their leaders alone decide.
    max_links: Annotated[int, Range(0, 10_000)] = 0
    # So many coordination workers decide for all brokers, as in the paper. 0: each broker decides for itself.
    workers: Annotated[int, Range(0, 100)] = 0

    def problems(self) -> Iterator[tuple[str, str]]:
        if 0 < self.max_links < 4:
            yield "max_links", "must be at least 4, or ways through a large city would be too long; 0 is no limit"


@dataclass(frozen=True, slots=True)
class ZooKeeperSettings:
    """Where coordination = "zookeeper" keeps what the city agrees on."""

    # The servers of the ensemble, HOST:PORT. None: `metromq up` starts an ensemble on this machine.
    servers: tuple[str, ...] = ()
    # How many servers `metromq up` starts then.
    local_servers: Literal[1, 3] = 1
    # A broker that the ensemble has not heard of for so long is gone.
    session_timeout_ms: Annotated[int, Range(500, 600_000)] = 4000
    # Below which znode everything of the city is. Empty: /metromq/ and the city's name.
    chroot: str = ""
    # With a user and a password, nobody else may read or write the city's znodes.
    user: str = ""
    password: str | None = None
    password_file: Annotated[FilePath, ReadableFile()] | None = None

    def problems(self) -> Iterator[tuple[str, str]]:
        for server in self.servers:
            if not _is_address(server):
                yield "servers", f'must look like 127.0.0.1:2181, not "{server}"'
        if self.chroot and (not self.chroot.startswith("/") or self.chroot.endswith("/") or "//" in self.chroot):
            yield "chroot", f'must look like /cities/tokyo, not "{self.chroot}"'
        if self.password is not None and self.password_file is not None:
            yield "password", "is also given as password_file; keep only one of them"
        if bool(self.user) != (self.password is not None or self.password_file is not None):
            yield "user", "and a password or password_file need each other"


@dataclass(frozen=True, slots=True)
class LinkSecurity:
    """How brokers prove to each other that they belong to the city: a shared secret, certificates, or both."""

    # A secret in a file of its own can have tighter permissions than the city's file.
    secret: str | None = None
    secret_file: Annotated[FilePath, ReadableFile()] | None = None
    # The authority that every broker's certificate comes from.
    ca_file: Annotated[FilePath, ReadableFile()] | None = None
    # This broker's certificate and key; its common name is the broker's name. `{name}` in a path stands for that name,
    # so that brokers on one machine can share the city's file.
    cert_file: FilePath | None = None
    key_file: FilePath | None = None

    @property
    def certified(self) -> bool:
        return self.ca_file is not None

    def problems(self) -> Iterator[tuple[str, str]]:
        if self.secret is not None and self.secret_file is not None:
            yield "secret", "is also given as secret_file; keep only one of them"
        if self.secret is not None and len(self.secret.encode()) < 16:
            yield "secret", "must be at least 16 bytes, or it could be guessed from a single intercepted handshake"
        given = [name for name in ("ca_file", "cert_file", "key_file") if getattr(self, name) is not None]
        for name in ("ca_file", "cert_file", "key_file"):
            if given and name not in given:
                yield name, f"is missing: mutual TLS needs it as well as {given[0]}"
        if not given and self.secret is None and self.secret_file is None:
            yield "secret", "is missing: peers need a secret, a secret_file, or ca_file, cert_file and key_file"


def split_address(text: str) -> tuple[str, int]:
    """Host and port of HOST:PORT or [HOST]:PORT."""
    host, _, port = text.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _is_address(text: str) -> bool:
    _, colon, port = text.rpartition(":")
    return bool(colon) and port.isascii() and port.isdigit() and len(port) < 6 and int(port) < 65536


@dataclass(frozen=True, slots=True)
class Site:
    """A place with a location and a network."""

    name: str
    kind: SiteKind = "edge"
    latitude: Latitude | None = None
    longitude: Longitude | None = None


@dataclass(frozen=True, slots=True)
class BrokerSpec:
    """One broker of the city."""

    name: str
    # Where clients and peers reach it; port 0 lets the system choose, for cities on one machine.
    listen: str = "127.0.0.1:0"
    # The areas it is at home in, with spaces between; fewer digits than l_b mean every area inside. Empty: nowhere.
    area: str = ""
    site: str = ""
    latitude: Latitude | None = None
    longitude: Longitude | None = None
    # Where peers reach it over mutual TLS, when [links] has certificates; clients cannot enter there.
    link_listen: str = ""

    @property
    def host(self) -> str:
        return split_address(self.listen)[0]

    @property
    def port(self) -> int:
        return split_address(self.listen)[1]

    def problems(self) -> Iterator[tuple[str, str]]:
        if not self.name or not self.name.isprintable() or "/" in self.name or len(self.name.encode()) > 64:
            yield "name", "must be 1 to 64 bytes of printable text without a slash"
        if not _is_address(self.listen):
            yield "listen", f'must look like 127.0.0.1:1883, not "{self.listen}"'
        if self.link_listen and not _is_address(self.link_listen):
            yield "link_listen", f'must look like 127.0.0.1:8884, not "{self.link_listen}"'
        for area in self.area.split():
            if any(digit not in DIGITS for digit in area.split("/")):
                yield "area", f'must be digits 0 to 3 with slashes between, such as 1/0, not "{area}"'


@dataclass(frozen=True, slots=True)
class FormerHome:
    """A broker that was at home in an area until lately, and when that ended.

    Subscriptions stay announced to it, so that it can still serve whoever could not be told of the change in time.
    """

    area: str
    broker: str
    until: float  # Unix time in seconds


@dataclass(frozen=True)
class CityPlan:
    """What all brokers of a city must know alike; it travels between them when it changes (see description.py)."""

    brokers: tuple[BrokerSpec, ...]
    name: str = "city"
    attachment: Attachment = "nearest"
    routing: Routing = "geographic"
    transport: Transport = "unicast"
    coordination: Coordination = "embedded"
    placement: Placement = "optimal"
    # The central broker; only routing = "central" and "delegation" have one.
    central: str = ""
    square: Square = field(default_factory=Square)
    areas: Areas = field(default_factory=Areas)
    membership: Membership = field(default_factory=Membership)
    overlay: OverlaySettings = field(default_factory=OverlaySettings)
    sites: tuple[Site, ...] = ()
    # While the routing of a running city changes: the other one, and its central broker. Subscriptions are announced
    # as both need it, and messages go as `routing` says. Written by `metromq city apply`.
    beside: str = ""
    beside_central: str = ""
    # Written by `metromq city apply` and `metromq area move`.
    formerly: tuple[FormerHome, ...] = ()


@dataclass(frozen=True)
class City(CityPlan):
    """The whole file: the plan, and how this broker proves to peers that it belongs to the city, which never travels.

    The lookups below are computed once. They are many because every room asks the city for something.
    """

    links: LinkSecurity = field(default_factory=LinkSecurity)
    zookeeper: ZooKeeperSettings = field(default_factory=ZooKeeperSettings)

    def problems(self) -> Iterator[tuple[str, str]]:
        yield from self._name_problems()
        for axis, chosen, built in (
            ("attachment", self.attachment, "nearest"),
            ("transport", self.transport, "unicast"),
        ):
            if chosen != built:
                yield axis, f'"{chosen}" does not exist yet; "{built}" does'
        if self.routing in CENTRAL_ROUTINGS and self.central not in {broker.name for broker in self.brokers}:
            yield "central", f'must be the name of the central broker, not "{self.central}"'
        if self.routing not in CENTRAL_ROUTINGS and self.central:
            allowed = " and ".join(f'"{routing}"' for routing in CENTRAL_ROUTINGS)
            yield "central", f'is only for routing = {allowed}, and this city has routing = "{self.routing}"'
        if self.beside and self.beside not in get_args(Routing):
            yield "beside", f'must be a routing or empty, not "{self.beside}"'
        if self.beside in CENTRAL_ROUTINGS and self.beside_central not in {broker.name for broker in self.brokers}:
            yield "beside_central", f'must be the name of the central broker, not "{self.beside_central}"'
        if self.beside and "delegation" in (self.routing, self.beside):
            yield "routing", 'a running city does not change to or from "delegation"; start it with another file'
        if self.overlay.workers and self.coordination != "zookeeper":
            yield "overlay.workers", 'needs coordination = "zookeeper", where they get their requests'
        if "geographic" in (self.routing, self.beside):
            yield from self._area_problems()

    def _name_problems(self) -> Iterator[tuple[str, str]]:
        if not self.brokers:
            yield "brokers", "a city needs at least one"
        sites = {site.name for site in self.sites}
        names: set[str] = set()
        for number, broker in enumerate(self.brokers):
            if broker.name in names:
                yield f"brokers[{number}].name", f'"{broker.name}" is the name of another broker'
            if broker.site and broker.site not in sites:
                yield f"brokers[{number}].site", f'"{broker.site}" is not one of the sites'
            names.add(broker.name)
        yield from self._address_problems()

    def _address_problems(self) -> Iterator[tuple[str, str]]:
        addresses: set[str] = set()
        for number, broker in enumerate(self.brokers):
            if self.links.certified and not broker.link_listen:
                yield f"brokers[{number}].link_listen", "is missing: with certificates, peers need a TLS listener"
            if broker.link_listen and not self.links.certified:
                yield f"brokers[{number}].link_listen", "needs certificates in [links]"
            for name in ("listen", "link_listen"):
                address = getattr(broker, name)
                if address and not address.endswith(":0") and address in addresses:
                    yield f"brokers[{number}].{name}", f"{address} is used by another broker"
                addresses.add(address)

    def _area_problems(self) -> Iterator[tuple[str, str]]:
        taken: dict[str, str] = {}
        for number, broker in enumerate(self.brokers):
            for prefix in broker.area.split():
                if any(digit not in DIGITS for digit in prefix.split("/")):
                    continue  # the broker itself tells
                if len(prefix.split("/")) > self.areas.l_b:
                    yield f"brokers[{number}].area", f"{prefix} has more than l_b = {self.areas.l_b} digits"
                    continue
                for area in areas_within(prefix, self.areas.l_b):
                    if area in taken:
                        yield f"brokers[{number}].area", f"{taken[area]} is already the home broker of area {area}"
                    taken[area] = broker.name
        missing = [area for area in all_areas(self.areas.l_b) if area not in taken]
        if missing:
            yield "brokers", f"no home broker for area {', '.join(missing[:4])}{' ...' if missing[4:] else ''}"

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(broker.name for broker in self.brokers)

    @cached_property
    def summarise_above(self) -> int:
        """So many filters below one prefix a broker announces one by one; 0: all of them."""
        entries = self.membership.interest_entries
        return max(1, entries // len(self.brokers)) if entries else 0

    @cached_property
    def by_name(self) -> Mapping[str, BrokerSpec]:
        return {broker.name: broker for broker in self.brokers}

    @cached_property
    def homes(self) -> Mapping[str, str]:
        """Each area of l_b digits and the broker that is at home there."""
        return {
            area: broker.name
            for broker in self.brokers
            for prefix in broker.area.split()
            for area in areas_within(prefix, self.areas.l_b)
        }

    @cached_property
    def former_homes(self) -> Mapping[str, frozenset[str]]:
        """Areas that have lately changed their home, and who was at home there."""
        found: dict[str, frozenset[str]] = {}
        for former in self.formerly:
            found[former.area] = found.get(former.area, frozenset()) | {former.broker}
        return found

    @cached_property
    def last_homes(self) -> Mapping[str, str]:
        """Areas that have lately changed their home, and who was at home there last."""
        return {former.area: former.broker for former in sorted(self.formerly, key=lambda one: one.until)}

    @cached_property
    def _clusters(self) -> Mapping[str, str]:
        first = {broker.name: (broker.area.split() or [""])[0] for broker in self.brokers}
        return {name: "/".join(area.split("/")[: self.areas.l_c]) for name, area in first.items()}

    @cached_property
    def cluster_members(self) -> Mapping[str, tuple[str, ...]]:
        """The brokers of each cluster, in the order of their names."""
        found: dict[str, list[str]] = {}
        for name in sorted(self.names):
            found.setdefault(self.cluster_of(name), []).append(name)
        return {cluster: tuple(members) for cluster, members in found.items()}

    def broker(self, name: str) -> BrokerSpec:
        if name not in self.by_name:
            raise UsageError(f'city {self.name} has no broker "{name}"; it has {", ".join(self.names)}')
        return self.by_name[name]

    @cached_property
    def identity(self) -> str:
        """What all brokers of a city must have alike, as words; two that differ would lose messages."""
        homes = " ".join(f"{area}:{broker}" for area, broker in sorted(self.homes.items()))
        owners = hashlib.blake2b(f"{homes}\n{self.square}".encode(), digest_size=6).hexdigest()
        areas = f"k={self.areas.k} l_b={self.areas.l_b} l_c={self.areas.l_c}"
        beside = f" beside={self.beside}:{self.beside_central}" if self.beside else ""
        return f"routing={self.routing} central={self.central or '-'} {areas} home-brokers={owners}{beside}"

    @cached_property
    def home_words(self) -> str:
        """What `identity` has as a digest, as words; empty: they are too many."""
        square = self.square
        corners = f"square={square.south},{square.west},{square.north},{square.east}"
        text = " ".join([corners, *(f"{area}={home}" for area, home in sorted(self.homes.items()))])
        return text if len(text) <= MOST_HOME_WORDS else ""

    @property
    def routings(self) -> tuple[str, ...]:
        """What decides which brokers must know of a subscription; two cities that differ here route differently."""
        return self.routing, self.central, self.beside, self.beside_central

    def link_address(self, name: str) -> tuple[str, int]:
        """Where peers dial a broker."""
        broker = self.broker(name)
        return split_address(broker.link_listen if self.links.certified else broker.listen)

    def cluster_of(self, name: str) -> str:
        """The first l_c digits of the broker's first area; brokers that share them watch each other. Empty: none."""
        return self._clusters.get(name, "")

    @cached_property
    def _places(self) -> dict[str, tuple[float, float]]:
        """As far as anybody has asked."""
        return {}

    @cached_property
    def _nearest(self) -> dict[str, tuple[str, ...]]:
        """As far as anybody has asked."""
        return {}

    def nearest_to(self, name: str) -> tuple[str, ...]:
        """The other brokers that are nearest, the nearest one first; not all of a large city."""
        found = self._nearest.get(name)
        if found is None:
            others = [other for other in self.names if other != name]
            found = tuple(nsmallest(MOST_NEAR, others, key=lambda other: (self.distance_km(name, other), other)))
            self._nearest[name] = found
        return found

    def place_of(self, name: str) -> tuple[float, float]:
        """Latitude and longitude: the broker's own, else its site's, else the middle of its area."""
        place = self._places.get(name)
        if place is None:
            place = self._places[name] = self._place_of(self.broker(name))
        return place

    def _place_of(self, broker: BrokerSpec) -> tuple[float, float]:
        if broker.latitude is not None and broker.longitude is not None:
            return broker.latitude, broker.longitude
        for site in self.sites:
            if site.name == broker.site and site.latitude is not None and site.longitude is not None:
                return site.latitude, site.longitude
        box = self.square.box()
        areas = broker.area.split()
        return centre_of(box, areas[0]) if areas else ((box.south + box.north) / 2, (box.west + box.east) / 2)

    def distance_km(self, one: str, other: str) -> float:
        return haversine_km(*self.place_of(one), *self.place_of(other))

    def nearest(self, latitude: float, longitude: float) -> str:
        """The broker that a client at this place attaches to."""
        return min(self.names, key=lambda name: (haversine_km(latitude, longitude, *self.place_of(name)), name))

    def area_at(self, latitude: float, longitude: float) -> str:
        return area_at(self.square.box(), latitude, longitude, self.areas.k)


def haversine_km(latitude: float, longitude: float, other_latitude: float, other_longitude: float) -> float:
    """Distance over the ground."""
    phi, other_phi = math.radians(latitude), math.radians(other_latitude)
    d_phi, d_lambda = other_phi - phi, math.radians(other_longitude - longitude)
    a = math.sin(d_phi / 2) ** 2 + math.cos(phi) * math.cos(other_phi) * math.sin(d_lambda / 2) ** 2
    return 2 * EARTH_RADIUS_KM * math.atan2(math.sqrt(a), math.sqrt(1 - a))


def grid_city(
    routing: str = "geographic",
    l_b: int = 2,
    l_c: int = 1,
    hello_interval_ms: int = 500,
    count: int | None = None,
    mesh_up_to: int = 16,
) -> City:
    """A city of 4 ** l_b brokers, each in the middle of its area and named after it: b12 is at home in 1/2.

    With `count` there are fewer, evenly chosen, and each is at home in several areas that follow each other.
    """
    every = all_areas(l_b)
    count = count or len(every)
    firsts = [number * len(every) // count for number in range(count)]
    shares = [every[first:last] for first, last in zip(firsts, [*firsts[1:], len(every)], strict=True)]
    brokers = tuple(BrokerSpec("b" + areas[0].replace("/", ""), area=" ".join(areas)) for areas in shares)
    city = City(
        brokers=brokers,
        routing=cast(Routing, routing),
        central=brokers[0].name if routing in CENTRAL_ROUTINGS else "",
        areas=Areas(max(4, l_b), l_b, l_c),
        overlay=OverlaySettings(max_distance_km=70.0),  # the grid is coarse, and its clusters should have members
        membership=Membership(hello_interval_ms=hello_interval_ms, mesh_up_to=mesh_up_to),
        links=LinkSecurity(secret="a secret for one machine only"),
    )
    for field_name, problem in (*city.areas.problems(), *city.problems()):
        raise UsageError(f"{field_name}: {problem}")
    return city
