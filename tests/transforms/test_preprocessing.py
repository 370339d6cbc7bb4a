import datetime
import math

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_transform.analyzers import sanitized_vocab_filename

from transforms.preprocessing import bars_bucket, log_bucket, time_ids, vocabulary_name


def test_log_bucket_is_the_floor_of_the_logarithm():
    values = [-5.0, -1.0, 0.0, 0.5, 1.0, 2.0, 3.0, 20.0, 1e6, 4e9, 1e30]
    found = log_bucket(tf.constant(values, tf.float32)).numpy().tolist()
    expected = [0 if x < 0 else 1 if x < 1 else min(2 + math.floor(math.log(x)), 24) for x in values]
    assert found == expected
    assert log_bucket(tf.constant([float("nan"), float("inf")])).numpy().tolist() == [0, 24]


def test_bars_bucket_is_the_floor_of_the_squared_logarithm():
    values = [-7.0, -1.0, 0.0, 1.0, 2.0, 3.0, 10.0, 1000.0, 1e9]
    expected = [0 if x < 0 else 1 + (int(x) if x <= 2 else math.floor(math.log(x) ** 2)) for x in values]
    assert bars_bucket(tf.constant(values, tf.float32)).numpy().tolist() == expected


def test_time_equals_the_calendar():
    random = np.random.default_rng(0)
    start = datetime.datetime(2000, 1, 1)
    moments = [start + datetime.timedelta(hours=int(hours)) for hours in random.integers(0, 99 * 365 * 24, 500)]
    moments += [datetime.datetime(2024, 2, 29, 23), datetime.datetime(2000, 3, 1), datetime.datetime(2014, 10, 21, 0)]
    texts = [moment.strftime("%y%m%d%H") for moment in moments]
    hour, weekday, weekend = (ids.numpy()[:, 0] - 2 for ids, _ in time_ids(tf.constant(texts)))
    assert hour.tolist() == [moment.hour for moment in moments]
    assert weekday.tolist() == [moment.weekday() for moment in moments]
    assert weekend.tolist() == [int(moment.weekday() >= 5) for moment in moments]


@pytest.mark.parametrize(("text", "local"), [("", 1), ("14139900", 0), ("hello", 0), ("141021", 0)])
def test_other_times_are_missing_or_unknown(text, local):
    assert [ids.numpy().tolist() for ids, _ in time_ids(tf.constant([text]))] == [[[local]]] * 3


def test_vocabulary_names_differ_for_different_columns():
    names = ("a b", "a/b", "a_b", "ä", "a-2f-b", "a_2f_b", "a/e9/", "a/é/")
    assert len({sanitized_vocab_filename(vocabulary_name(name)) for name in names}) == len(names)
