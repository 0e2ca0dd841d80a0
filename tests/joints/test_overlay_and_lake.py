"""An overlay that records: every message of paho clients is in the lake once, with its origin and its payload right.

The story and its judge are those of test_city_and_lake.py, in a city whose messages go through clusters and relays.
"""

import json
import signal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.cli.cities import city_process, write_city
from tests.joints.test_city_and_lake import (
    AREAS,
    HOMES,
    Observer,
    Recorded,
    judge_second_hand,
    play,
    rows_of_the_lake,
)
from tests.pipeline.commands import answer

pytestmark = pytest.mark.timeout(1800)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Recorded:
    directory = tmp_path_factory.mktemp("overlay")
    lake, config, observer = directory / "lake", directory / "metromq.toml", Observer()
    config.write_text(f'[recorder]\nlake = "{lake}"\n\n[journal]\nrecord_qos0 = true\n')
    file = write_city(directory, 3)
    text = file.read_text()
    assert 'routing = "geographic"' in text
    file.write_text(text.replace('routing = "geographic"', 'routing = "overlay"'))
    with city_process(directory, "up", str(file), "--durability", "os", "--config", str(config)) as city:
        city.says("Ctrl-C stops the city")
        play(city, observer)
        assert city.end(signal.SIGINT) == 0
    observer.reached = {f"{area}/value": {"b22"} for area in AREAS.values()}
    answer(spark, "run", "--once", "--refresh", "0", "--lake", str(lake))
    checked = answer(spark, "check", "--json", "--lake", str(lake))
    return Recorded(observer, {"lake": rows_of_the_lake(Path(lake))}, json.loads(checked))


def test_every_message_of_an_overlay_is_in_the_lake_once(recorded: Recorded) -> None:
    found = recorded.rows["lake"]
    assert len({(row.broker, row.offset) for row in found}) == len(found)
    first_hand = [row for row in found if row.kind in ("publish", "will")]
    assert sorted(map(repr, (row.sent for row in first_hand))) == sorted(map(repr, recorded.observer.sent))
    judge_second_hand(found, first_hand, recorded.observer)
    assert [item["broker"] for item in recorded.checked if item["whole"]] == list(HOMES)
