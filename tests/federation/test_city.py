"""The city file: presets load, and a mistake is told with its field."""

from pathlib import Path

import pytest

from metromq.errors import ConfigError, UsageError
from metromq.federation.city import PRESETS, grid_city, load_city, load_preset

SMALL = """
routing = "geographic"
[links]
secret = "sixteen bytes at least"
[[sites]]
name = "quay"
[[brokers]]
name = "west"
area = "0 2"
site = "quay"
[[brokers]]
name = "east"
area = "1 3/0 3/1"
[[brokers]]
name = "south"
area = "3/2 3/3"
"""


def load_text(tmp_path: Path, text: str) -> object:
    file = tmp_path / "city.toml"
    file.write_text(text, encoding="utf-8")
    return load_city(file)


def test_presets_are_whole_cities() -> None:
    for name in PRESETS:
        city = load_preset(name)
        assert city.routing == name
        assert len(city.brokers) == 16
        assert (city.areas.k, city.areas.l_b, city.areas.l_c) == (4, 2, 1)
        assert city.homes["1/2"] == "b12"
    with pytest.raises(UsageError, match="no preset"):
        load_preset("circular")


def test_a_broker_may_be_at_home_in_several_areas(tmp_path: Path) -> None:
    file = tmp_path / "city.toml"
    file.write_text(SMALL, encoding="utf-8")
    city = load_city(file)
    assert city.homes["0/3"] == city.homes["2/0"] == "west"
    assert city.homes["3/1"] == "east"
    assert city.homes["3/2"] == "south"
    assert city.cluster_of("east") == "1"
    assert city.nearest(0.9, 0.9) == "east"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (('routing = "geographic"', 'routing = "round"'), "routing: must be one of"),
        (('area = "0 2"', 'area = "0"'), "brokers: no broker is at home in area 2/0"),
        (('area = "0 2"', 'area = "0 2 1/1"'), r"brokers\[1\].area: 1/1 is already home of west"),
        (('area = "0 2"', 'area = "0 2x"'), r"brokers\[0\].area: must be digits"),
        (('site = "quay"', 'site = "key"'), r'brokers\[0\].site: "key" is none of the sites'),
        (('name = "east"', 'name = "west"'), r'brokers\[1\].name: "west" is taken'),
        (('secret = "sixteen bytes at least"', ""), "links.secret: is missing"),
        (('secret = "sixteen bytes at least"', 'secret = "short"'), "links.secret: must be at least 16 bytes"),
        (("[links]", 'central = "west"\n[links]'), "central: has no meaning"),
        (("[links]", "[areas]\nl_b = 1\n[links]"), "areas.l_c: must be less than l_b"),
        (("[links]", "[square]\nnorth = -3.0\n[links]"), "square.north: must lie north"),
        (("[links]", "colour = 1\n[links]"), "colour: is unknown"),
    ],
)
def test_a_mistake_is_told_with_its_field(tmp_path: Path, change: tuple[str, str], field: str) -> None:
    with pytest.raises(ConfigError, match=field):
        load_text(tmp_path, SMALL.replace(*change, 1))


def test_grid_cities_of_any_size_cover_all_areas() -> None:
    for count in (1, 4, 9, 16):
        city = grid_city(count=count)
        assert len(city.brokers) == count
        assert len(city.homes) == 16
    with pytest.raises(UsageError, match='has no broker "b99"'):
        grid_city().broker("b99")
