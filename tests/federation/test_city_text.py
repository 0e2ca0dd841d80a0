"""A city's text is read back as the same city."""

import dataclasses
from pathlib import Path

import pytest

from metromq.federation.city import PRESETS, City, LinkSecurity, grid_city, load_city, load_preset
from metromq.federation.city_text import city_text


def again(city: City, directory: Path) -> City:
    file = directory / "again.toml"
    file.write_text(city_text(city), encoding="utf-8")
    return load_city(file)


@pytest.mark.parametrize("preset", PRESETS)
def test_presets(preset: str, tmp_path: Path) -> None:
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
