"""Topic names, filters, the matching tree, retained messages and Z-order areas."""

from metromq.protocol.topics.areas import (
    DIGITS,
    Box,
    all_areas,
    area_at,
    area_of,
    areas_touched,
    areas_within,
    centre_of,
    reaches_beyond_areas,
)
from metromq.protocol.topics.names import (
    common_levels,
    covers,
    matches,
    narrowest,
    overlaps,
    split_shared,
    validate_filter,
    validate_topic,
    wildness,
)

__all__ = [
    "DIGITS",
    "Box",
    "all_areas",
    "area_at",
    "area_of",
    "areas_touched",
    "areas_within",
    "centre_of",
    "common_levels",
    "covers",
    "matches",
    "narrowest",
    "overlaps",
    "reaches_beyond_areas",
    "split_shared",
    "validate_filter",
    "validate_topic",
    "wildness",
]
