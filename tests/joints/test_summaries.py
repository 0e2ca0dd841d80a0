"""Many filters at one broker of a live city, announced as a prefix: paho gets what it wants, and nothing else."""

import dataclasses
from pathlib import Path

from metromq.federation.city import grid_city
from tests.clients.paho_client import client
from tests.scenarios.city import live_city

FEW, MANY = 5, 40


def test_clients_do_not_notice_that_their_filters_are_summarised(tmp_path: Path) -> None:
    city = grid_city("flood-subscriptions", count=3, hello_interval_ms=200)
    few = dataclasses.replace(city.membership, interest_entries=FEW * len(city.names))
    first, second, third = city.names
    summarised = dataclasses.replace(city, membership=few)
    with (
        live_city(summarised, tmp_path) as live,
        client(live.ports[first]) as reader,
        client(live.ports[second]) as writer,
    ):
        writer.publish("house/99/door", b"closed", 1, retain=True)
        for number in range(MANY):
            reader.subscribe(f"house/{number}/door", 1)
        live.settle()
        for number in range(0, MANY, 3):
            writer.publish(f"house/{number}/door", b"%d" % number, 1)
            writer.publish(f"house/{number}/window", b"nobody wants it", 1)
        wanted = [f"{number}" for number in range(0, MANY, 3)]
        assert [message.payload.decode() for message in reader.take(len(wanted))] == wanted
        reader.subscribe("house/99/door", 1)
        (value,) = reader.take(1)
        assert (value.payload, value.retain) == (b"closed", True)
        with client(live.ports[first]) as member, client(live.ports[third]) as watcher:
            member.subscribe("$share/group/house/+/bell", 1)
            watcher.subscribe("house/+/bell", 1)
            live.settle()
            rung = [f"{number}" for number in range(20)]
            for payload in rung:
                writer.publish(f"house/{payload}/bell", payload.encode(), 1)
            for one in (member, watcher):
                assert [message.payload.decode() for message in one.take(len(rung))] == rung
                assert one.nothing_more()
        assert reader.nothing_more()
