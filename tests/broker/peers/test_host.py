"""The live host in cities without journals: what crosses links, and what is mended when a broker is lost."""

from metromq.client import Client
from metromq.protocol.wire.packets import Connect, Publish
from tests.broker.peers.cities import is_joined, memory_city, running, until
from tests.broker.wire_client import wire_client
from tests.peers import play


def test_every_message_of_a_known_topic_reaches_the_peer() -> None:
    async def story() -> None:
        async with running(memory_city(), "b00", "b10") as [one, other]:
            await until(lambda: is_joined(one, "b10") and is_joined(other, "b00"))
            async with Client("127.0.0.1", other.port) as subscriber, Client("127.0.0.1", one.port) as publisher:
                await subscriber.subscribe("news/#", qos=1)
                assert one.host is not None
                node = one.host.node
                await until(lambda: bool(node.routes.route("news/today").hops))
                for number in range(5):
                    await publisher.publish("news/today", b"%d" % number, qos=1)
                messages = aiter(subscriber.messages)
                assert [(await anext(messages)).payload for _ in range(5)] == [b"0", b"1", b"2", b"3", b"4"]

    play(story())


def test_the_heir_serves_its_own_members_of_a_shared_subscription() -> None:
    """The message waits for an owner that seems to be there and is not; nobody chose a member yet."""

    async def story() -> None:
        city = memory_city()
        async with running(city, "b00") as [broker], Client("127.0.0.1", broker.port) as client:
            assert broker.host is not None
            node = broker.host.node
            for peer in node.peers:  # as it is between the death of a peer and the moment when its link breaks
                node.up.opened(peer)
            await client.subscribe("$share/group/1/0/#", qos=1)
            await client.publish("1/0/temperature", b"21", qos=1)
            assert broker.hub.links.backlog("b10").unsettled() == 1
            for peer in node.peers:
                node.peer_down(peer, 0)
            message = await anext(aiter(client.messages))
            assert (message.topic, message.payload) == ("1/0/temperature", b"21")
            assert node.table.owner("1/0") == "b00"

    play(story())


def test_a_topic_keeps_its_order_over_a_link_whichever_way_its_messages_take() -> None:
    """Plain packets of a known topic travel as a run, others one by one; here both come in one read."""

    async def story() -> None:
        async with running(memory_city(), "b00", "b10") as [one, other]:
            await until(lambda: is_joined(one, "b10") and is_joined(other, "b00"))
            async with Client("127.0.0.1", other.port) as subscriber, wire_client(one.port, Connect("p")) as publisher:
                await subscriber.subscribe("news/#")
                assert one.host is not None
                node = one.host.node
                await until(lambda: bool(node.routes.route("news/today").hops))
                publisher.send(*(Publish("news/today", b"%d" % number, retain=number % 3 == 2) for number in range(12)))
                messages = aiter(subscriber.messages)
                assert [(await anext(messages)).payload for _ in range(12)] == [b"%d" % number for number in range(12)]

    play(story())
