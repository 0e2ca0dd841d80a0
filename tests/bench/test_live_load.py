"""What the host takes from a virtual machine does not count as the broker's delay."""

from bench.live_load import SLICE_NS, Slices, stolen


class Host:
    def __init__(self) -> None:
        self.taken = 0

    def stolen(self) -> int:
        return self.taken


def test_a_slice_in_which_the_host_took_something_and_the_next_one_count_for_nothing() -> None:
    host = Host()
    slices = Slices(host.stolen)
    for number, waits in enumerate(([1], [2], [900], [800], [3])):
        slices.add(waits)
        if waits == [900]:
            host.taken += 1
        slices.look((number + 1) * SLICE_NS)
    assert slices.taken() == ([2, 3], 2 / 5), "the first one began before anybody looked"


def test_what_came_before_a_slice_is_over_waits_for_its_end() -> None:
    slices = Slices(Host().stolen)
    slices.look(0)
    slices.add([5])
    slices.look(SLICE_NS // 2)
    assert slices.taken() == ([], 0.0)
    slices.look(SLICE_NS)
    assert slices.taken() == ([5], 1.0)


def test_all_counts_where_the_host_left_nothing_alone() -> None:
    host = Host()
    slices = Slices(host.stolen)
    for number in range(3):
        host.taken += 1
        slices.add([number])
        slices.look(number * SLICE_NS)
    assert slices.taken() == ([0, 1, 2], 0.0)


def test_the_system_tells_what_was_taken() -> None:
    assert stolen() >= 0
