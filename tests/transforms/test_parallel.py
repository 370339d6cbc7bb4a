import functools
import os

import pytest

from transforms.errors import InputError
from transforms.parallel import Workers, cores

BEAM = ("--direct_num_workers=1",)
PLACES = {"one process": Workers(processes=1), "two processes": Workers(processes=2), "beam": Workers(beam_args=BEAM)}


def square(number: int) -> int:
    return number * number


def refuse(number: int, bad: int) -> int:
    if number == bad:
        raise InputError(f"part {number}: broken; write it again")
    return number


def process_id(_number: int) -> int:
    return os.getpid()


@pytest.mark.parametrize("place", PLACES)
def test_results_come_in_the_order_of_the_items(place):
    assert PLACES[place].map(square, range(5), seconds=0) == [0, 1, 4, 9, 16]


@pytest.mark.parametrize("place", PLACES)
def test_a_mistake_in_one_part_is_raised_as_it_was(place):
    with pytest.raises(InputError, match="^part 3: broken; write it again$"):
        PLACES[place].map(functools.partial(refuse, bad=3), range(5), seconds=0)


def test_little_work_stays_in_this_process_and_much_does_not():
    assert set(Workers().map(process_id, range(4), seconds=0.1)) == {os.getpid()}
    if cores() > 1:
        assert os.getpid() not in Workers().map(process_id, range(4), seconds=1000)


def test_progress_counts_the_items_that_are_done():
    seen: list[int] = []
    Workers(processes=2).map(square, range(4), seconds=0, progress=seen.append)
    assert seen == [1, 2, 3, 4]
