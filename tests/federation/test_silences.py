"""Silences of peers: what may have been said before, and what was said over a new connection."""

from metromq.federation.silences import BURST_US, HELD_UP_US, LATELY_US, Silences


def test_usual_silences_do_not_count() -> None:
    silences = Silences(1000)
    silences.heard("b1", 5000)
    silences.heard("b1", 5999)
    assert silences.before("b1", 5999) == 0


def test_the_first_word_of_a_peer_ends_no_silence() -> None:
    silences = Silences(1000)
    silences.heard("b1", 1_000_000)
    assert silences.before("b1", 1_000_000) == silences.under_way("b1", 1_000_000) == 0


def test_what_comes_in_a_burst_may_be_as_old_as_the_silence() -> None:
    silences = Silences(1000)
    silences.connected("b1", 0)
    for now_us in (10, 7010, 7011):
        silences.heard("b1", now_us)
    assert silences.under_way("b1", 7011) == silences.before("b1", 7011) == 7001
    assert silences.under_way("b1", 7011 + BURST_US) == 0


def test_what_comes_over_a_new_connection_is_not() -> None:
    silences = Silences(1000)
    silences.connected("b1", 0)
    silences.heard("b1", 10)
    silences.connected("b1", 7000)
    silences.heard("b1", 7010)
    assert silences.under_way("b1", 7010) == 0
    assert silences.before("b1", 7010) == 7000


AHEAD_US = 600_000_000  # the peer's clock


def test_what_takes_longer_than_the_quickest_greeting_was_held_up() -> None:
    silences = Silences(1_000_000)
    assert silences.held_up("b1", AHEAD_US, 2000) == 0  # nobody knows yet
    for now_us, took_us in ((10_000, 3000), (20_000, 2000), (30_000, 9000)):
        silences.greeted("b1", now_us - took_us + AHEAD_US, now_us)
    assert silences.held_up("b1", 40_000 + AHEAD_US, 42_000) == 0
    assert silences.held_up("b1", 40_000 + AHEAD_US, 42_000 + HELD_UP_US - 1) == 0
    assert silences.held_up("b1", 40_000 + AHEAD_US, 342_000) == 300_000
    assert silences.held_up("b1", 0, 342_000) == 0  # it does not say


def test_a_clock_that_was_set_is_believed_after_a_while_and_leads_back_no_further_than_a_silence() -> None:
    silences = Silences(1_000_000)
    silences.greeted("b1", AHEAD_US, 2000)
    assert silences.held_up("b1", 5000, 7000) == 1_000_000
    for turn in (1, 2):
        silences.greeted("b1", turn * LATELY_US, turn * LATELY_US + 2000)
    assert silences.held_up("b1", 3 * LATELY_US, 3 * LATELY_US + 2000) == 0
