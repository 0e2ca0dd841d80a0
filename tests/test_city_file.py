"""The city file: presets load, a mistake is told with its field, and a city's text is read back as the same city."""

import dataclasses
from pathlib import Path

import pytest

from metromq.city_file import PRESETS, city_text, load_city, load_preset
from metromq.errors import ConfigError, UsageError
from metromq.federation.city import City, LinkSecurity, grid_city

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
        assert city.routing == name.removesuffix("-zookeeper")
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
        (('area = "0 2"', 'area = "0"'), "brokers: no home broker for area 2/0"),
        (('area = "0 2"', 'area = "0 2 1/1"'), r"brokers\[1\].area: west is already the home broker of area 1/1"),
        (('area = "0 2"', 'area = "0 2x"'), r"brokers\[0\].area: must be digits"),
        (('site = "quay"', 'site = "key"'), r'brokers\[0\].site: "key" is not one of the sites'),
        (('name = "east"', 'name = "west"'), r'brokers\[1\].name: "west" is the name of another broker'),
        (('secret = "sixteen bytes at least"', ""), "links.secret: is missing"),
        (('secret = "sixteen bytes at least"', 'secret = "short"'), "links.secret: must be at least 16 bytes"),
        (("[links]", 'central = "west"\n[links]'), 'central: is only for routing = "central"'),
        (("[links]", "[areas]\nl_b = 1\n[links]"), "areas.l_c: must be less than l_b"),
        (("[links]", "[square]\nnorth = -3.0\n[links]"), "square.north: must lie north"),
        (("[links]", "colour = 1\n[links]"), "colour: is not a setting"),
    ],
)
def test_a_mistake_is_told_with_its_field(tmp_path: Path, change: tuple[str, str], field: str) -> None:
    with pytest.raises(ConfigError, match=field):
        load_text(tmp_path, SMALL.replace(*change, 1))


def again(city: City, directory: Path) -> City:
    file = directory / "again.toml"
    file.write_text(city_text(city), encoding="utf-8")
    return load_city(file)


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_as_text(preset: str, tmp_path: Path) -> None:
    assert again(load_preset(preset), tmp_path) == load_preset(preset)


def test_names_and_secrets_of_any_kind(tmp_path: Path) -> None:
    city = dataclasses.replace(
        grid_city(count=2), name='Ōta "south"\\', links=LinkSecurity(secret="\t\x7f\u2028 sixteen bytes at least")
    )
    assert again(city, tmp_path) == city


def test_paths_stay_right_when_the_text_goes_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret").write_text("sixteen bytes at least")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    city = dataclasses.replace(grid_city(count=2), links=LinkSecurity(secret_file=Path("secret")))
    assert again(city, tmp_path / "elsewhere").links.secret_file == tmp_path / "secret"
