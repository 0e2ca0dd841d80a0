"""SUBSCRIBE, UNSUBSCRIBE and their answers on the wire (sections 3.8 to 3.11), byte for byte."""

import pytest

from metromq.errors import UsageError
from metromq.protocol.wire.encoding import encode
from metromq.protocol.wire.packets import (
    MQTT5,
    MQTT31,
    MQTT311,
    Properties,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
)
from tests.spec.cases import OLD, Bad, Good, bad, good

USER = Properties(user=(("k", "v"),))
USER_HEX = "2600016b000176"
WHY = Properties(reason_string="r", user=(("k", "v"),))
WHY_HEX = "0b 1f000172 2600016b000176"


@good(
    Good("one filter", "8207 0001 00 000161 00", Subscribe(1, [Subscription("a")])),
    Good("one filter of 3.1.1", "8206 0001 000161 02", Subscribe(1, [Subscription("a", 2)]), OLD),
    Good(
        "all options",
        "820d 0001 00 000161 2d 0003612f23 12",
        Subscribe(1, [Subscription("a", 1, True, True, 2), Subscription("a/#", 2, retain_handling=1)]),
    ),
    Good(
        "identifier and user property",
        f"8211 0001 0a 0b8001 {USER_HEX} 000161 00",
        Subscribe(1, [Subscription("a")], 128, USER),
    ),
    Good("largest identifier", "820c 0001 05 0bffffff7f 000161 00", Subscribe(1, [Subscription("a")], 268_435_455)),
    Good("shared", "8211 0001 00 000b" + b"$share/g/+/".hex() + "01", Subscribe(1, [Subscription("$share/g/+/", 1)])),
    Good("repeated in 3.1", "8a06 0001 000161 00", Subscribe(1, [Subscription("a")]), MQTT31, one_way=True),
    Good(
        "$share is an ordinary name in 3.1.1",
        "820b 0001 0006" + b"$share".hex() + "00",
        Subscribe(1, [Subscription("$share")]),
        OLD,
    ),
)
def test_subscribe(case: Good) -> None:
    case.check()


@bad(
    Bad("[MQTT-3.8.1-1]", "flags", "8007 0001 00 000161 00", 0x81),
    Bad("[MQTT-3.8.1-1]", "repeated in 3.1.1", "8a06 0001 000161 00", 0x81, OLD),
    Bad("[MQTT-2.2.1-3]", "packet identifier 0", "8207 0000 00 000161 00", 0x82),
    Bad("[MQTT-3.8.3-2]", "no filter", "8203 0001 00", 0x82),
    Bad("[MQTT-3.8.3-2]", "no filter in 3.1.1", "8202 0001", 0x82, OLD),
    Bad("[MQTT-3.8.3-5]", "reserved option bits", "8207 0001 00 000161 40", 0x81),
    Bad("[MQTT-3.8.3-5]", "options in 3.1.1", "8206 0001 000161 04", 0x81, OLD),
    Bad("[MQTT-3.8.3-4]", "no local and shared", "8210 0001 00 000a" + b"$share/g/a".hex() + "04", 0x82),
    Bad("3.8.3.1", "QoS 3", "8207 0001 00 000161 03", 0x82),
    Bad("3.8.3.1", "retain handling 3", "8207 0001 00 000161 30", 0x82),
    Bad("3.8.2.1.2", "identifier 0", "8209 0001 02 0b00 000161 00", 0x82),
    Bad("3.8.2.1.2", "identifier twice", "820b 0001 04 0b01 0b02 000161 00", 0x82),
    Bad("[MQTT-4.7.1-1]", "# before the end", "8209 0001 00 0003232f61 00", 0x8F),
    Bad("[MQTT-4.7.1-1]", "# after a letter", "8208 0001 00 00026123 00", 0x8F),
    Bad("[MQTT-4.7.1-2]", "+ after a letter", "8208 0001 00 0002612b 00", 0x8F),
    Bad("[MQTT-4.7.3-1]", "empty filter", "8206 0001 00 0000 00", 0x8F),
    Bad("[MQTT-4.8.2-1]", "empty group", "820f 0001 00 0009" + b"$share//a".hex() + "00", 0x8F),
    Bad("[MQTT-4.8.2-2]", "group with wildcard", "8210 0001 00 000a" + b"$share/+/a".hex() + "00", 0x8F),
    Bad("[MQTT-4.8.2-2]", "group without filter", "820e 0001 00 0008" + b"$share/g".hex() + "00", 0x8F),
    Bad("[MQTT-1.5.4-1]", "filter is not UTF-8", "8207 0001 00 0001ff 00", 0x81),
    Bad("ends early", "options missing", "8206 0001 00 000161", 0x81),
    Bad("2.2.2.2", "reason string", "820b 0001 04 1f000172 000161 00", 0x81),
    Bad("2.1.2", "from a server", "8207 0001 00 000161 00", 0x82, server=False),
)
def test_subscribe_refused(case: Bad) -> None:
    case.check()


@good(
    Good("granted", "9004 0001 00 01", Suback(1, [1]), server=False),
    Good("of 3.1.1", "9006 0001 00010280", Suback(1, [0, 1, 2, 0x80]), OLD, server=False),
    Good("with properties", f"9010 0001 {WHY_HEX} 8700", Suback(1, [0x87, 0], WHY), server=False),
)
def test_suback(case: Good) -> None:
    case.check()


@bad(
    Bad("[MQTT-3.9.3-2]", "reason code of another packet", "9004 0001 00 11", 0x82, server=False),
    Bad("[MQTT-3.9.3-2]", "reason code of MQTT 5 in 3.1.1", "9003 0001 87", 0x82, OLD, server=False),
    Bad("[MQTT-3.9.3-1]", "no reason code", "9003 0001 00", 0x81, server=False),
    Bad("2.2.2.2", "subscription identifier", "9006 0001 02 0b01 00", 0x81, server=False),
    Bad("2.1.2", "from a client", "9004 0001 00 01", 0x82),
)
def test_suback_refused(case: Bad) -> None:
    case.check()


@good(
    Good("one filter", "a206 0001 00 000161", Unsubscribe(1, ["a"])),
    Good("two filters of 3.1.1", "a20a 0001 000161 0003622f2b", Unsubscribe(1, ["a", "b/+"]), OLD),
    Good("with properties", f"a20d 0001 07 {USER_HEX} 000123", Unsubscribe(1, ["#"], USER)),
    Good("repeated in 3.1", "aa05 0001 000161", Unsubscribe(1, ["a"]), MQTT31, one_way=True),
)
def test_unsubscribe(case: Good) -> None:
    case.check()


@bad(
    Bad("[MQTT-3.10.1-1]", "flags", "a006 0001 00 000161", 0x81),
    Bad("[MQTT-2.2.1-3]", "packet identifier 0", "a206 0000 00 000161", 0x82),
    Bad("[MQTT-3.10.3-2]", "no filter", "a203 0001 00", 0x82),
    Bad("[MQTT-4.7.1-1]", "# after a letter", "a207 0001 00 00026123", 0x8F),
    Bad("2.2.2.2", "subscription identifier", "a208 0001 02 0b01 000161", 0x81),
    Bad("2.1.2", "from a server", "a206 0001 00 000161", 0x82, server=False),
)
def test_unsubscribe_refused(case: Bad) -> None:
    case.check()


@good(
    Good("done", "b005 0001 00 0011", Unsuback(1, [0, 0x11]), server=False),
    Good("of 3.1.1", "b002 0001", Unsuback(1), OLD, server=False),
    Good("with properties", f"b00f 0001 {WHY_HEX} 87", Unsuback(1, [0x87], WHY), server=False),
)
def test_unsuback(case: Good) -> None:
    case.check()


@bad(
    Bad("[MQTT-3.11.3-2]", "reason code of another packet", "b004 0001 00 01", 0x82, server=False),
    Bad("[MQTT-3.11.3-1]", "no reason code", "b003 0001 00", 0x81, server=False),
    Bad("left over", "reason code in 3.1.1", "b003 0001 00", 0x81, OLD, server=False),
    Bad("2.1.2", "from a client", "b004 0001 00 00", 0x82),
)
def test_unsuback_refused(case: Bad) -> None:
    case.check()


def test_refusals_of_mqtt_5_become_0x80_in_311() -> None:
    assert encode(Suback(1, [2, 0x87, 0x8F]), MQTT311) == bytes.fromhex("9005 0001 028080")


@pytest.mark.parametrize("size", [1, 119, 120, 121, 16375, 16376, 16377])
def test_identifier_beside_properties_of_any_length(size: int) -> None:
    """The Property Length grows by a byte at 128 and 16,384; the identifier stands inside it."""
    packet = Subscribe(1, [Subscription("a")], 5, Properties(user=(("k", "v" * size),)))
    whole = Subscribe(1, [Subscription("a")], 0, Properties(subscription_identifiers=(5,), user=packet.properties.user))
    assert encode(packet, MQTT5) == encode(whole, MQTT5)


def test_identifier_given_twice_is_our_own_mistake() -> None:
    with pytest.raises(UsageError, match="identifier"):
        encode(Subscribe(1, [Subscription("a")], 5, Properties(subscription_identifiers=(6,))), MQTT5)
