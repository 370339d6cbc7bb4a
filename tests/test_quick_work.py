"""What the tests of most files do without, and which files do without nothing."""

import pytest
import tensorflow as tf

from ctrpipe.common.charts import Chart, Line, chart_svg
from ctrpipe.common.sessions import load_session
from ctrpipe.pipeline.report import plots
from tests import quick_work
from tests.quick_work import DRAWN, OPTIMISED, OPTIMISED_WHERE_LARGE, ROOT, is_of, leave_out, titled_svg


def test_the_files_that_do_without_nothing_are_there():
    for name in (*OPTIMISED, *OPTIMISED_WHERE_LARGE, *DRAWN):
        file, _, test = name.partition("::")
        assert (ROOT / file).exists() and (not test or f"def {test}(" in (ROOT / file).read_text()), name
    assert is_of(ROOT / "tests/contract/test_loads.py", OPTIMISED)
    assert not is_of(ROOT / "tests/serving/test_export.py", OPTIMISED)
    assert not is_of(ROOT / "tests/contract/test_loads.py", DRAWN)
    assert is_of(ROOT / "tests/a.py", ("tests/a.py::test_b",), "test_b[1]")
    assert not is_of(ROOT / "tests/a.py", ("tests/a.py::test_b",), "test_a")


@pytest.mark.parametrize("optimised", [True, False])
def test_a_session_keeps_its_settings_and_answers_the_same(optimised, tmp_path, monkeypatch):
    module = tf.Module()
    module.weight = tf.Variable(2.0)
    module.double = tf.function(lambda x: {"y": module.weight * x}, input_signature=[tf.TensorSpec([None], name="x")])
    tf.saved_model.save(module, str(tmp_path), signatures={"serving_default": module.double})
    monkeypatch.setattr(quick_work, "_is_optimised", optimised)
    session, signatures = load_session(tmp_path, tf.compat.v1.ConfigProto(inter_op_parallelism_threads=3))
    found = session._config
    assert found.inter_op_parallelism_threads == 3
    assert found.graph_options.rewrite_options.disable_meta_optimizer != optimised
    tensors = signatures["serving_default"]
    [answer] = session.run([tensors.outputs["y"].name], {tensors.inputs["x"].name: [1.0, 4.0]})
    assert answer.tolist() == [2.0, 8.0]
    session.close()


def test_a_process_may_do_without_both(monkeypatch):
    monkeypatch.setattr(quick_work, "_is_optimised", True)
    monkeypatch.setattr(plots, "chart_svg", chart_svg)
    leave_out()
    assert not quick_work._is_optimised and plots.chart_svg is titled_svg


def test_a_chart_that_is_not_drawn_is_a_picture_of_its_title():
    assert plots.chart_svg is titled_svg
    drawn = titled_svg(Chart("Gain & loss", [Line("a", [0, 1], [0, 1])], ("x", "y")))
    assert drawn.startswith("<svg ") and "<title>Gain &amp; loss</title>" in drawn
