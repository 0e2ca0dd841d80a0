"""Silences of peers: what may have been said before, and what was said over a new connection."""

from metromq.federation.silences import BURST_US, Silences


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
