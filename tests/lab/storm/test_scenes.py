"""Most storms have scenes: what chance alone seldom puts one behind the other."""

from metromq.lab.storm.history import History, history_of
from metromq.lab.storm.scenes import CALM_S, FALLS, MESSAGES
from metromq.lab.storm.simulated import SimulatedStorm
from metromq.lab.storm.steps import Step

SEEDS = 200


def messages_of(history: History) -> list[Step]:
    """Those of scenes have payloads of their own."""
    return [step for step in history.steps if step.verb == "publish" and step.words[2].startswith("v")]


def is_torn_away(history: History) -> bool:
    """Whether a client slips away while messages are on their way, and its broker falls with it."""
    sent = messages_of(history)
    slips = [step for step in history.steps if step.verb == "slip"]
    falls = [step.at for step in history.steps if step.verb in FALLS]
    return any(
        0.0 < slip.at - first.at < 0.02 and any(0.0 <= at - slip.at < 0.01 for at in falls)
        for slip in slips
        for first in sent
        if first.words[2] in ("v1", f"v{MESSAGES + 1}", "v4")
    )


def begins_anew(history: History) -> bool:
    return any(step.verb == "connect" and step.words[0] != "c2" and step.words[2] == "clean" for step in history.steps)


def is_behind(history: History) -> bool:
    """Whether the scenes come when all else is over, and mended."""
    first = messages_of(history)[0].at
    published = [step for step in history.steps if step.verb == "publish" and step.words[2].startswith("m")]
    return published[-1].at < first - CALM_S / 2


def test_half_of_the_storms_have_scenes_of_each_kind_in_the_midst_and_behind() -> None:
    histories = [history for seed in range(SEEDS) if messages_of(history := history_of(seed))]
    assert SEEDS * 0.4 < len(histories) < SEEDS * 0.6
    assert sum(is_torn_away(history) for history in histories) > SEEDS // 5
    assert sum(begins_anew(history) for history in histories) > SEEDS // 5
    assert len(histories) // 3 < sum(is_behind(history) for history in histories) < len(histories) * 2 // 3


def test_clients_are_torn_away_from_messages_that_were_not_released() -> None:
    torn = [seed for seed in range(60) if is_torn_away(history_of(seed))]
    seen = [SimulatedStorm(history_of(seed)).play() for seed in torn]
    assert sum(any(payload.startswith("v") for _, payload in one.forgotten) for one in seen) >= 3


def ended_members(history: History) -> dict[str, float]:
    """Members of a group of their own whose sessions end, and when."""
    members = {step.words[0] for step in history.steps if step.verb == "subscribe" and "$share/e/" in step.words[1]}
    clean = {step.words[0] for step in history.steps if step.verb == "connect" and step.words[2:3] == ("clean",)}
    return {
        step.words[0]: step.at
        for step in history.steps
        if step.words and step.words[0] in members
        if (step.verb in ("connect", "slip") and step.words[2] == "clean")
        or (step.verb in ("disconnect", "vanish") and step.words[0] in clean)
    }


def test_in_half_of_the_others_members_of_a_group_end_while_messages_are_on_their_way() -> None:
    histories = [history_of(seed) for seed in range(SEEDS)]
    with_members = [history for history in histories if ended_members(history)]
    assert SEEDS * 0.15 < len(with_members) < SEEDS * 0.35
    assert not any(messages_of(history) for history in with_members), "these stay what they were"
    for history in with_members:
        sent = [step.at for step in history.steps if step.verb == "publish" and step.words[2].startswith("e")]
        assert any(abs(at - ended) < 0.01 for at in sent for ended in ended_members(history).values())
