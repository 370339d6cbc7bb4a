"""Progress is a logger: printed by default, silenced or kept on demand."""

import logging
import re

import pytest

from ctrpipe.common.progress import announce, share_of


@pytest.fixture(params=["ctrpipe.progress", "ctrpipe"])
def any_logger(request):
    logger = logging.getLogger(request.param)
    level = logger.level
    yield logger
    logger.setLevel(level)


@pytest.fixture
def logger():
    logger = logging.getLogger("ctrpipe.progress")
    level = logger.level
    yield logger
    logger.setLevel(level)


def test_progress_is_printed_to_standard_error_after_the_seconds(capsys):
    announce("50% of the rows %s")
    out, err = capsys.readouterr()
    assert out == "" and re.fullmatch(r"\[ *\d+\.\ds\] 50% of the rows %s\n", err)


def test_progress_can_be_silenced_and_heard_again(capsys, any_logger):
    before = any_logger.level
    any_logger.setLevel(logging.WARNING)
    announce("Training")
    any_logger.setLevel(before)
    announce("Exporting")
    assert capsys.readouterr().err.endswith("] Exporting\n")


def test_other_loggers_of_the_package_are_as_loud_as_a_program_makes_them():
    assert logging.getLogger("ctrpipe").level == logging.getLogger("ctrpipe.serving").level == logging.NOTSET


def test_progress_can_be_kept_by_a_handler(logger):
    kept = []
    handler = logging.Handler()
    handler.emit = lambda record: kept.append(record.getMessage())
    logger.addHandler(handler)
    announce("Training")
    logger.removeHandler(handler)
    announce("Exporting")
    assert kept == ["Training"]


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("3 of 40 parts transformed", 0.075),
        ("1,500 of 3,000 parts of the log read", 0.5),
        ("Permuting: 2 of 8 columns", 0.25),
        ("round 1 of 5, 30 cells", 0.2),
        ("log.csv: 70,000 lines scored", None),
        ("one of many, of 3", None),
        ("0 of 0 parts", None),
    ],
)
def test_a_count_tells_the_share(text, share):
    assert share_of(text) == share
