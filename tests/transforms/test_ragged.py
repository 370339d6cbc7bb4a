"""Splitting of texts makes no more parts than are used."""

import pytest
import tensorflow as tf

from ctrpipe.transforms.text.ragged import first_filled, last_parts

TEXTS = ["", "{}", "x", "{}{}x", "x{}y{}{}z{}w", "{}{}{}x{}", "x{}y", "ab{}ba{}aba{}x", "|x|{}||y", "x\\{}1{}y\\"]


@pytest.mark.parametrize("separator", ["|", " ", "||", ", ", "aba", "\\", ".", "é", "\t"])
def test_the_first_parts_are_those_of_a_whole_split(separator):
    whole = [text.replace("{}", separator) for text in TEXTS]
    for most in (1, 2, 3):
        found = first_filled(tf.constant(whole), separator, most).to_list()
        wanted = [[part.encode() for part in text.split(separator) if part][:most] for text in whole]
        assert found == wanted
        found = last_parts(tf.constant(whole), separator, most).to_list()
        assert found == [[part.encode() for part in text.split(separator)][-most:] for text in whole]


def test_more_parts_than_one_pattern_can_count():
    texts = ["|".join(map(str, range(count))) for count in (999, 1000, 1001, 2500, 2501, 2502, 9000)]
    found = last_parts(tf.constant(texts), "|", 2501).to_list()
    assert found == [[part.encode() for part in text.split("|")[-2501:]] for text in texts]


def test_bytes_that_are_no_utf8_stay():
    texts = tf.constant([b"\xff||\xc3|a\0|b", b"|\xff|"])
    assert first_filled(texts, "|", 3).to_list() == [[b"\xff", b"\xc3", b"a\0"], [b"\xff"]]
    assert last_parts(texts, "|", 3).to_list() == [[b"\xc3", b"a\0", b"b"], [b"", b"\xff", b""]]
    assert last_parts(texts, "|", 1).to_list() == [[b"b"], [b""]]
