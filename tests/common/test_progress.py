"""Progress is a logger: printed by default, silenced or kept on demand."""

import logging
import re

import pytest

from ctrpipe.common.progress import announce


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


def test_progress_can_be_silenced(capsys, logger):
    logger.setLevel(logging.WARNING)
    announce("Training")
    assert capsys.readouterr().err == ""


def test_progress_can_be_kept_by_a_handler(logger):
    kept = []
    handler = logging.Handler()
    handler.emit = lambda record: kept.append(record.getMessage())
    logger.addHandler(handler)
    announce("Training")
    logger.removeHandler(handler)
    announce("Exporting")
    assert kept == ["Training"]
