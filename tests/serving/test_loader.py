"""A version in the C++ loader."""

import concurrent.futures
import time
import types

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format
from tensorflow.core.framework import tensor_pb2
from tensorflow.core.protobuf import config_pb2, saved_model_pb2

from ctrpipe.common.errors import InputError
from ctrpipe.models.base.feature_map import FeatureMap, Text
from ctrpipe.serving import loader
from ctrpipe.serving.layout import Asset, asset_path
from ctrpipe.serving.loader import Servable
from ctrpipe.serving.server import core
from ctrpipe.serving.server.options import parse_flags
from ctrpipe.serving.server.row_cost import measure
from ctrpipe.serving.server.session_options import for_first_versions, session_config


class Straight(tf.Module):
    @tf.function(
        input_signature=[tf.TensorSpec([None], tf.float32, name="x"), tf.TensorSpec([None], tf.float32, name="scale")]
    )
    def scaled(self, x, scale):
        return {"product": x * scale, "sum": x + scale}


class Model(Straight):
    def __init__(self):
        self.bias = tf.Variable(0.0)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    def echo(self, text):
        return {"text": tf.identity(text), "bytes": tf.strings.length(text)}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    def shout(self, text):
        return {"text": tf.strings.upper(text)}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")])
    def endless(self, x):
        return {"y": tf.while_loop(lambda x: tf.reduce_all(x < np.inf), lambda x: [tf.sin(x)], [x])[0]}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")])
    def streamed(self, x):
        return {"y": tf.data.Dataset.from_tensor_slices(x).reduce(0.0, lambda total, value: total + value)}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int32, name="sizes")])
    def shaped(self, sizes):
        return {"text": tf.fill(sizes, "a"), "ones": tf.ones(sizes)}


@pytest.fixture(scope="module")
def version(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    model = Model()
    names = ("scaled", "echo", "shout", "endless", "streamed", "shaped")
    tf.saved_model.save(model, str(folder), {name: getattr(model, name) for name in names})
    file = folder / "saved_model.pb"
    saved = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    default = text_format.Parse("dtype: DT_FLOAT tensor_shape {} float_val: 10", tensor_pb2.TensorProto())
    graph = saved.meta_graphs[0]
    graph.signature_def["scaled"].defaults["scale"].CopyFrom(default)
    graph.signature_def["nowhere"].outputs["y"].name = "nowhere"
    handle = next(node.name for node in graph.graph_def.node if node.op == "VarHandleOp")
    for infos in (graph.signature_def["handle"].outputs, graph.signature_def["handle_in"].inputs):
        infos["y"].name, infos["y"].dtype = f"{handle}:0", tf.resource.as_datatype_enum
    file.write_bytes(saved.SerializeToString())
    return folder


@pytest.fixture(scope="module")
def servable(version):
    found = Servable(version)
    yield found
    found.close()


def x(*values):
    return np.array(values, np.float32)


def test_all_outputs_come_by_name_or_those_asked_for(servable):
    inputs = {"x": x(1, 2), "scale": x(3, 4)}
    found = servable.run("scaled", inputs)
    assert {name: values.tolist() for name, values in found.items()} == {"product": [3, 8], "sum": [4, 6]}
    assert list(servable.run("scaled", inputs, ["sum"])) == ["sum"]


@pytest.mark.parametrize("dimensions", [33, 64])
def test_strings_of_many_dimensions_are_refused(servable, dimensions):
    """TensorFlow would end the process."""
    text = np.array([b"a"], object)
    assert servable.run("echo", {"text": text.reshape([1] * 32)}, ["bytes"])["bytes"].shape == (1,) * 32
    with pytest.raises(ValueError, match=f"strings has {dimensions} dimensions; at most 32"):
        servable.run("echo", {"text": text.reshape([1] * dimensions)}, ["bytes"])


@pytest.mark.parametrize(("output", "most"), [("text", 32), ("ones", 64)])
def test_an_output_of_more_dimensions_than_numpy_has_is_refused(servable, output, most):
    """TensorFlow would end the process."""
    sizes = np.ones(most, np.int32)
    assert servable.run("shaped", {"sizes": sizes}, [output])[output].shape == (1,) * most
    deeper = {"sizes": np.ones(most + 1, np.int32)}
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"has more than {most} dimensions"):
        servable.run("shaped", deeper, [output])
    with pytest.raises(tf.errors.InvalidArgumentError, match="has more than (32|64) dimensions"):  # of both outputs
        servable.peak_bytes("shaped", deeper)


def test_an_output_that_the_graph_does_not_have_has_the_error_of_a_sessions_run(servable):
    message = "Tensor nowhere:0, specified in either feed_devices or fetch_devices was not found in the Graph"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        servable.run("nowhere", {})


def test_an_output_that_is_a_handle_is_refused(servable):
    with pytest.raises(ValueError, match="is of type resource, which has no values"):
        servable.run("handle", {})


def test_the_cost_of_a_row_of_handles_is_not_known(servable):
    assert measure(servable, "handle_in").row_bytes > 2 * 8000


def test_outputs_have_the_order_they_were_asked_for_in(servable):
    inputs = {"x": x(1), "scale": x(2)}
    for outputs in (["sum", "product"], ["product", "sum"]):
        found = servable.run("scaled", inputs, outputs)
        assert list(found) == outputs and (found["sum"], found["product"]) == ([3], [2])


def test_clients_cannot_make_graphs_without_end(version, monkeypatch):
    made, make = [], Servable._make_call
    monkeypatch.setattr(Servable, "_make_call", lambda self, key: made.append(key) or make(self, key))
    monkeypatch.setattr(loader, "_MOST_CALLS", 2)
    servable = Servable(version)
    inputs = {"x": x(1), "scale": x(2)}
    for outputs in (["sum", "product"], ["product", "sum"], ["sum"], ["product"], ["sum"], ["product"]):
        assert list(servable.run("scaled", inputs, outputs)) == outputs
    assert made == [("scaled", "product", "sum"), ("scaled", "sum"), ("scaled",)]
    with pytest.raises(KeyError):
        servable.run("scaled", inputs, ["absent"])
    servable.close()


@pytest.mark.parametrize(("most_calls", "count"), [(1, 1), (0, 2)])
def test_several_signatures_of_one_input_are_one_run(version, monkeypatch, most_calls, count):
    monkeypatch.setattr(loader, "_MOST_CALLS", most_calls)
    servable, runs = Servable(version), []
    monkeypatch.setattr(servable, "_run", lambda *given: runs.append(given) or Servable._run(servable, *given))
    wanted = {"shout": ["text"], "echo": ["text", "bytes"]}
    for word in (b"ab", b"c"):
        runs.clear()
        found = servable.run_together(wanted, np.array([word], object))
        assert {name: list(outputs) for name, outputs in found.items()} == wanted
        assert found["shout"]["text"].tolist() == [word.upper()]
        assert found["echo"]["text"].tolist() == [word] and found["echo"]["bytes"].tolist() == [len(word)]
        assert len(runs) == count
    with pytest.raises(KeyError):
        servable.run_together({"echo": ["none"]}, np.array([b""], object))
    servable.close()


def test_an_absent_input_has_the_signatures_default(servable):
    assert servable.run("scaled", {"x": x(1, 2)})["product"].tolist() == [10, 20]


def test_what_is_not_known_is_a_key_error(servable):
    for arguments in (("none", {}), ("scaled", {"y": x(1)}), ("scaled", {"x": x(1)}, ["none"])):
        with pytest.raises(KeyError):
            servable.run(*arguments)


def test_nothing_is_cast(servable):
    with pytest.raises(tf.errors.InvalidArgumentError, match="int64"):
        servable.run("scaled", {"x": np.array([1]), "scale": x(1)})


@pytest.mark.parametrize("flags", [[], ["--tensorflow_session_parallelism=2"]])
def test_a_run_ends_soon_after_its_time_is_up(version, flags):
    servable = Servable(version, config=session_config(parse_flags(flags)))
    began = time.monotonic()
    with pytest.raises(tf.errors.DeadlineExceededError, match="Timed out waiting for notification"):
        servable.run("endless", {"x": x(1)}, timeout_seconds=0.3)
    assert 0.3 <= time.monotonic() - began < 5
    cpu = time.process_time()
    time.sleep(0.5)
    assert time.process_time() - cpu < 0.25  # and no thread goes on with it
    servable.close()


@pytest.fixture
def straight(version, tmp_path):
    """A graph without a loop."""
    model = Straight()
    tf.saved_model.save(model, str(tmp_path), {"scaled": model.scaled})
    servable = Servable(tmp_path, config=session_config(parse_flags([])))
    yield servable
    servable.close()


def test_only_what_was_short_before_runs_where_nothing_stops_it(straight, monkeypatch):
    timeouts, run = [], Servable._session_run
    monkeypatch.setattr(
        Servable, "_session_run", lambda self, *rest: timeouts.append(rest[-1].timeout_in_ms) or run(self, *rest)
    )

    def stays_in_thread(count):
        timeouts.clear()
        ones = np.ones(count, np.float32)
        assert straight.run("scaled", {"x": ones, "scale": ones}, timeout_seconds=9.5)["sum"].tolist() == [2.0] * count
        assert timeouts in ([], [9500])
        return not timeouts

    monkeypatch.setattr(loader, "_SHORT_SECONDS", np.inf)
    assert [stays_in_thread(count) for count in (5, 5, 4, 6, 6)] == [False, True, True, False, True]
    monkeypatch.setattr(loader, "_SHORT_SECONDS", 0.0)
    assert [stays_in_thread(count) for count in (5, 5, 4, 3)] == [True, False, True, True]


def test_an_input_of_another_type_has_the_words_of_a_sessions_run_in_either_thread(straight):
    for _ in range(2):
        with pytest.raises(tf.errors.InvalidArgumentError, match="Expects arg.1. to be float but int64 is provided"):
            straight.run("scaled", {"x": np.array([1]), "scale": x(1)}, timeout_seconds=9.5)
        straight.run("scaled", {"x": x(1), "scale": x(1)}, timeout_seconds=9.5)  # short: the next one stays in thread


@pytest.mark.parametrize("signature", ["endless", "streamed"])
def test_a_signature_that_may_take_any_time_never_runs_where_nothing_stops_it(version, signature, monkeypatch):
    seen, run = [], Servable._session_run
    monkeypatch.setattr(Servable, "_session_run", lambda self, *rest: seen.append(rest[-1]) or run(self, *rest))
    servable = Servable(version, config=session_config(parse_flags([])))
    for _ in range(3):
        servable.run(signature, {"x": x(np.inf)}, timeout_seconds=9.5)
    assert [options.timeout_in_ms for options in seen] == [9500] * 3
    for _ in range(3):
        servable.run("scaled", {"x": x(1), "scale": x(2)}, timeout_seconds=9.5)
    assert len(seen) == 4  # without a loop, the first run alone
    servable.close()


def test_a_measurement_without_an_end_stops_and_is_not_repeated(servable, monkeypatch):
    monkeypatch.setattr(loader, "_MEASURED_MILLISECONDS", 100)
    tried = []

    def endless(servable, signature, inputs):
        tried.append(signature)
        return measured(servable, "endless", {"x": x(1)})

    measured = Servable.peak_bytes
    monkeypatch.setattr(Servable, "peak_bytes", endless)
    assert measure(servable, "echo").row_bytes > 2 * 8000  # of an unknown signature
    assert tried == ["echo"]


@pytest.mark.parametrize(("row_bytes", "rows"), [(1 << 20, 9), (100 << 20, 2)])
def test_a_measurement_takes_few_rows_where_each_takes_much_memory(servable, row_bytes, rows, monkeypatch):
    sizes = []

    def peak_bytes(servable, signature, inputs):
        sizes.append(len(inputs["x"]))
        return row_bytes * sizes[-1]

    monkeypatch.setattr(Servable, "peak_bytes", peak_bytes)
    assert measure(servable, "scaled").row_bytes == 2 * row_bytes + 1 and sizes == [1, 1, rows]


def test_strings_keep_every_byte(servable):
    texts = np.array([b"a\0b\0", "é☃".encode(), b"", b"\xff"], object)
    found = servable.run("echo", {"text": texts})
    assert found["text"].tolist() == texts.tolist() and found["bytes"].tolist() == [4, 5, 0, 1]


def test_threads_may_run_a_signature_before_it_has_run_once(version):
    servable = Servable(version)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda value: servable.run("scaled", {"x": x(value)})["product"].tolist(), range(40)))
    assert found == [[10 * value] for value in range(40)]
    servable.close()


def test_what_has_no_time_left_is_not_run(servable):
    with pytest.raises(tf.errors.DeadlineExceededError):
        servable.run("scaled", {"x": x(1)}, timeout_seconds=0)


def test_a_folder_without_a_model_is_one_line(tmp_path):
    with pytest.raises(InputError, match="Could not find SavedModel .pb or .pbtxt at supplied export directory path"):
        Servable(tmp_path)


# The flags --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "intra", "inter"),
    [
        ([], 0, -1),  # automatic: the first version sets the threads within an operation; one operation after another
        (["--tensorflow_session_parallelism=3"], 3, 3),
        (["--tensorflow_intra_op_parallelism=2"], 2, 0),
        (["--tensorflow_intra_op_parallelism=2", "--tensorflow_inter_op_parallelism=-1"], 2, -1),
        (["--tensorflow_inter_op_parallelism=5"], 0, 5),
    ],
)
def test_flags_set_the_sessions_threads(flags, intra, inter):
    found = session_config(parse_flags(flags))
    assert (found.intra_op_parallelism_threads, found.inter_op_parallelism_threads) == (intra, inter)


@pytest.mark.parametrize(
    ("flags", "intra"),
    [
        ([], 1),
        (["--tensorflow_session_parallelism=3"], 3),
        (["--tensorflow_intra_op_parallelism=2", "--tensorflow_inter_op_parallelism=-1"], 2),
        (["--tensorflow_inter_op_parallelism=5"], 0),
    ],
)
def test_an_operation_of_a_click_model_takes_one_thread_unless_a_flag_says_so(flags, intra, tmp_path):
    save_feature_map(tmp_path)
    found = for_first_versions(session_config(parse_flags(flags)), [tmp_path, tmp_path])
    assert found.intra_op_parallelism_threads == intra


def test_an_operation_takes_all_processors_if_any_of_the_first_models_is_no_click_model(tmp_path):
    config = session_config(parse_flags([]))
    click, foreign, text, damaged = (tmp_path / name for name in ("click", "foreign", "text", "damaged"))
    save_feature_map(click)
    save_feature_map(text, Text(8, 100))
    save_feature_map(damaged)
    asset_path(damaged, Asset.FEATURE_MAP).write_text("{")
    for version in (foreign, text, damaged):
        for first in ([version], [click, version], [version, click]):
            assert for_first_versions(config, first).intra_op_parallelism_threads == 0, first


def save_feature_map(version, text=None):
    asset_path(version, Asset.FEATURE_MAP).parent.mkdir(parents=True)
    FeatureMap.from_sizes([("site", "categorical", 9)], text=text).save(asset_path(version, Asset.FEATURE_MAP))


@pytest.fixture(name="threads_of")
def threads_of_a_server(tmp_path, monkeypatch):
    """Starts a server with flags. Returns the threads within an operation by version, and whether rows are shared."""
    loaded = {}

    def load(path, config, tags):
        loaded[f"{path.parent.name}/{path.name}"] = config.intra_op_parallelism_threads
        return types.SimpleNamespace(signatures={}, input_types={}, close=lambda: None)

    monkeypatch.setattr(core, "Servable", load)

    def start(*flags):
        server = core.ServerCore(parse_flags([*flags, "--max_num_load_retries=0"]))
        try:
            server.start()
            return dict(loaded), server.admission.shares_rows
        finally:
            server.stop()

    return start


def save_version(version, text=None):
    save_feature_map(version, text)
    (version / "saved_model.pb").touch()


@pytest.mark.parametrize(
    ("flags", "intra", "shares"),
    [
        ([], 1, True),
        (["--tensorflow_intra_op_parallelism=1", "--tensorflow_inter_op_parallelism=-1"], 1, False),
        (["--tensorflow_session_parallelism=2"], 2, False),
    ],
)
def test_rows_of_a_click_model_are_shared_unless_somebody_has_set_the_threads(
    flags, intra, shares, threads_of, tmp_path
):
    save_version(tmp_path / "clicks" / "2")
    save_version(tmp_path / "clicks" / "1", Text(8, 100))  # not served, so it does not count
    assert threads_of(f"--model_base_path={tmp_path / 'clicks'}", *flags) == ({"clicks/2": intra}, shares)


def test_all_models_of_the_config_decide_the_threads_together(threads_of, tmp_path):
    """A session sets the threads of its whole process, so a click model that loads first would slow the texts down."""
    save_version(tmp_path / "clicks" / "1")
    save_version(tmp_path / "texts" / "1", Text(8, 100))
    models = [
        f'config {{ name: "{name}" base_path: "{tmp_path / name}" model_platform: "tensorflow" }}'
        for name in ("clicks", "texts")
    ]
    (tmp_path / "models.config").write_text(f"model_config_list {{ {' '.join(models)} }}")
    assert threads_of(f"--model_config_file={tmp_path / 'models.config'}") == ({"clicks/1": 0, "texts/1": 0}, False)


def test_a_flag_stands_above_the_sessions_file(tmp_path):
    file = tmp_path / "session.config"
    file.write_text("intra_op_parallelism_threads: 7 allow_soft_placement: true")
    flag = f"--tensorflow_session_config_file={file}"
    found = session_config(parse_flags([flag]))
    assert found == config_pb2.ConfigProto(intra_op_parallelism_threads=7, allow_soft_placement=True)
    found = session_config(parse_flags([flag, "--tensorflow_session_parallelism=2"]))
    assert found.intra_op_parallelism_threads == 2 and found.allow_soft_placement
    file.write_text("intra: 7")
    with pytest.raises(InputError, match="session.config"):
        session_config(parse_flags([flag]))


def test_bfloat16_is_the_graph_rewrite_of_tf_serving():
    rewrites = session_config(parse_flags(["--mixed_precision=bfloat16"])).graph_options.rewrite_options
    assert rewrites.auto_mixed_precision_onednn_bfloat16 == 1  # ON
