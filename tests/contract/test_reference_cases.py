"""What TF Serving's own tests of inference, metadata and status ask, and what they expect.

A docstring names the file under tensorflow_serving/ and the tests. `make contract SERVER=...` asks the binary the same.
"""

import grpc
import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    inference_pb2,
    input_pb2,
    model_pb2,
    predict_pb2,
    regression_pb2,
)

from tests.contract import reference_models, servers
from tests.contract.rpc import Rpc, model_config, refusal

CLASSIFY = "tensorflow/serving/classify"
REGRESS = "tensorflow/serving/regress"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Base paths: `test_model` of half plus two, `examples`, `counter`, and `two` with the versions 123 and 124."""
    folder = tmp_path_factory.mktemp("reference")
    reference_models.save(reference_models.HalfPlusTwo(), folder / "test_model" / "123")
    reference_models.save(reference_models.Examples(), folder / "examples" / "1")
    reference_models.save(reference_models.Counter(), folder / "counter" / "123")
    for version in (123, 124):
        reference_models.save(reference_models.Counter(), folder / "two" / str(version))
    return folder


@pytest.fixture(scope="module")
def rpc(folder):
    config = folder / "models.config"
    both = "model_version_policy { specific { versions: 123 versions: 124 } }"
    names = ("test_model", "examples", "counter")
    config.write_text(model_config(**{name: (folder / name,) for name in names}, two=(folder / "two", both)))
    with servers.start([f"--model_config_file={config}"]) as addresses, Rpc(addresses.grpc) as rpc:
        yield rpc


def spec(name="test_model", signature="", version=None):
    found = model_pb2.ModelSpec(name=name, signature_name=signature)
    if version is not None:
        found.version.value = version
    return found


def predict(rpc, inputs, *outputs, **where):
    """Asks with tensors as text protos."""
    request = predict_pb2.PredictRequest(model_spec=spec(**where), output_filter=outputs)
    for name, text in inputs.items():
        text_format.Parse(text, request.inputs[name])
    return rpc.prediction.Predict(request, timeout=30)


def predict_refusal(rpc, inputs, *outputs, **where):
    return refusal(predict, rpc, inputs, *outputs, **where)


TWO = "dtype: DT_FLOAT float_val: 2"  # a scalar: it has no shape
STRING = 'dtype: DT_STRING tensor_shape { dim { size: 1 } } string_val: "any_value"'


@pytest.mark.slow
def test_G3_missing_or_empty_model_spec(rpc):
    """servables/tensorflow/predict_util_test.cc: MissingOrEmptyModelSpec."""
    assert refusal(rpc.prediction.Predict, predict_pb2.PredictRequest())[0] == "INVALID_ARGUMENT"
    unnamed = predict_pb2.PredictRequest(model_spec=model_pb2.ModelSpec())
    assert refusal(rpc.prediction.Predict, unnamed)[0] == "INVALID_ARGUMENT"


def test_G5_empty_input_list(rpc):
    """servables/tensorflow/predict_util_test.cc: EmptyInputList."""
    assert predict_refusal(rpc, {}, version=123)[0] == "INVALID_ARGUMENT"


def test_G5_input_tensors_dont_match_model_spec_inputs(rpc):
    """servables/tensorflow/predict_util_test.cc: InputTensorsDontMatchModelSpecInputs."""
    code, text = predict_refusal(rpc, {"unknown_key1": STRING, "unknown_key2": TWO}, version=123)
    assert code == "INVALID_ARGUMENT"
    assert "Sent extra: {unknown_key1,unknown_key2}" in text and "Missing but required: {x}" in text


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        ("dtype: DT_BOOL bool_val: true", "Expects arg[0] to be float but bool is provided"),
        (STRING, "Expects arg[0] to be float but string is provided"),
    ],
)
def test_G5_input_tensors_have_wrong_type(rpc, tensor, message):
    """servables/tensorflow/predict_util_test.cc: PredictionInvalidTensor, InputTensorsHaveWrongType."""
    assert predict_refusal(rpc, {"x": tensor}, "y", version=123) == ("INVALID_ARGUMENT", message)


def test_G6_output_filters_dont_match_model_spec_outputs(rpc):
    """servables/tensorflow/predict_util_test.cc: OutputFiltersDontMatchModelSpecOutputs."""
    code, text = predict_refusal(rpc, {"x": TWO}, "output_filter")
    assert code == "INVALID_ARGUMENT" and "output tensor alias not found in signature: output_filter" in text
    assert list(predict(rpc, {"x": TWO}, "y").outputs) == ["y"]
    assert predict_refusal(rpc, {"x": TWO}, "y", "y") == ("INVALID_ARGUMENT", "duplicate output tensor alias: y")


@pytest.mark.parametrize(
    ("signature", "name", "output", "value"),
    [
        ("", "x", "y", 3),
        ("regress_x2_to_y3", "inputs", "outputs", 4),
        ("classify_x2_to_y3", "inputs", "scores", 4),
    ],
)
def test_G7_prediction_success(rpc, signature, name, output, value):
    """servables/tensorflow/predict_util_test.cc: PredictionSuccess, PredictionWithNamedRegressionSignature and
    PredictionWithNamedClassificationSignature. The whole answer, in which a scalar has a shape without dimensions.
    """
    expected = predict_pb2.PredictResponse(model_spec=spec("test_model", signature or "serving_default", 123))
    text_format.Parse(f"dtype: DT_FLOAT tensor_shape {{}} float_val: {value}", expected.outputs[output])
    assert predict(rpc, {name: TWO}, signature=signature, version=123) == expected


def test_G2_prediction_with_customized_signatures(rpc):
    """servables/tensorflow/predict_util_test.cc: PredictionWithCustomizedSignatures."""
    calls = [
        ("get_counter", {}, 0),
        ("incr_counter", {}, 1),
        ("reset_counter", {}, 0),
        ("incr_counter", {}, 1),
        ("incr_counter_by", {"delta": "dtype: DT_FLOAT float_val: 3"}, 4),
    ]
    for signature, inputs, value in calls:
        expected = predict_pb2.PredictResponse(model_spec=spec("counter", signature, 123))
        text_format.Parse(f"dtype: DT_FLOAT tensor_shape {{}} float_val: {value}", expected.outputs["output"])
        assert predict(rpc, inputs, name="counter", signature=signature, version=123) == expected


def example(**features):
    found = tf.train.Example()
    for name, values in features.items():
        for value in values:
            if isinstance(value, str):
                found.features.feature[name].bytes_list.value.append(value.encode())
            else:
                found.features.feature[name].float_list.value.append(value)
    return found


def scored(**scores):
    return example(**{"class": list(scores), "score": [float(score) for score in scores.values()]})


def listed(*examples):
    return input_pb2.Input(example_list={"examples": examples})


def in_context(context, *examples):
    return input_pb2.Input(example_list_with_context={"examples": examples, "context": context})


DOS, CUATRO = scored(dos=2, uno=1), scored(cuatro=4, tres=3)
EMPTY = [
    pytest.param(input_pb2.Input(), id="EmptyInput"),
    pytest.param(listed(), id="EmptyExampleList"),
    pytest.param(in_context(DOS), id="EmptyExampleListWithContext"),
]


def classify(rpc, sent, signature="classify"):
    request = classification_pb2.ClassificationRequest(model_spec=spec("examples", signature), input=sent)
    answer = rpc.prediction.Classify(request, timeout=30)
    assert answer.model_spec == spec("examples", signature, 1)
    return [[(one.label, one.score) for one in row.classes] for row in answer.result.classifications]


@pytest.mark.parametrize(
    ("sent", "signature", "expected"),
    [
        (listed(DOS, CUATRO), "classify", [[("dos", 2), ("uno", 1)], [("cuatro", 4), ("tres", 3)]]),
        (in_context(DOS, example(), example()), "classify", [[("dos", 2), ("uno", 1)]] * 2),
        (
            in_context(scored(uno=1, dos=2), example(), scored(tres=3, cuatro=4)),
            "classify",
            [[("uno", 1), ("dos", 2)], [("tres", 3), ("cuatro", 4)]],
        ),
        (listed(DOS, CUATRO), "classes_only", [[("dos", 0), ("uno", 0)], [("cuatro", 0), ("tres", 0)]]),
        (listed(DOS, CUATRO), "scores_only", [[("", 2), ("", 1)], [("", 4), ("", 3)]]),
        (listed(scored(minus=-1, zero=0, one=1)), "scores_only", [[("", -1), ("", 0), ("", 1)]]),
        (listed(DOS, CUATRO), "classify_plus_one", [[("dos", 3), ("uno", 2)], [("cuatro", 5), ("tres", 4)]]),
    ],
    ids=[
        "ExampleList",
        "ExampleListWithContext",
        "ExampleListWithContext_DuplicateFeatures",
        "ClassesOnly",
        "ScoresOnly",
        "ZeroScoresArePresent",
        "ValidNamedSignature",
    ],
)
def test_C1_C4_C7_classifier(rpc, sent, signature, expected):
    """servables/tensorflow/classifier_test.cc, the tests that the ids name."""
    assert classify(rpc, sent, signature) == expected


@pytest.mark.parametrize(
    ("signature", "message"),
    [
        pytest.param("regress", "to contain at least one of", id="InvalidNamedSignature"),
        pytest.param("scores_of_rank_3", "Expected Tensor shape: [batch_size num_classes]", id="MalformedScores"),
        pytest.param("absent", "No signature was found with the name: absent", id="MissingClassificationSignature"),
        pytest.param("fails", "Run totally failed", id="RunsFails"),
        pytest.param("one_row_of_classes", "batch size", id="ClassesIncorrectTensorBatchSize"),
        pytest.param("classes_of_floats", "Expected classes Tensor of DT_STRING", id="ClassesIncorrectTensorType"),
        pytest.param("one_row_of_scores", "batch size", id="ScoresIncorrectTensorBatchSize"),
        pytest.param("scores_of_strings", "Expected scores Tensor of DT_FLOAT", id="ScoresIncorrectTensorType"),
        pytest.param(
            "a_score_too_many",
            "Tensors class and score should match in dim_size(1). Got 2 vs. 3",
            id="MismatchedNumberOfTensorClasses",
        ),
    ],
)
def test_C5_classifier_refuses(rpc, signature, message):
    """servables/tensorflow/classifier_test.cc, the tests that the ids name."""
    features = {"class": ["dos", "uno"], "score": [2.0, 1.0], "output": [2.0]}
    code, text = refusal(classify, rpc, listed(*[example(**features)] * 2), signature)
    assert code == "INVALID_ARGUMENT" and message in text


@pytest.mark.parametrize("sent", EMPTY)
def test_C2_classifier_input_is_empty(rpc, sent):
    """servables/tensorflow/classifier_test.cc, the tests that the ids name."""
    assert refusal(classify, rpc, sent) == ("INVALID_ARGUMENT", "Input is empty.")


def regress(rpc, sent, signature="regress"):
    request = regression_pb2.RegressionRequest(model_spec=spec("examples", signature), input=sent)
    answer = rpc.prediction.Regress(request, timeout=30)
    assert answer.model_spec == spec("examples", signature, 1)
    return [one.value for one in answer.result.regressions]


@pytest.mark.parametrize(
    ("sent", "signature", "expected"),
    [
        pytest.param(listed(example(output=[2.0]), example(output=[3.0])), "regress", [2, 3], id="BasicExampleList"),
        pytest.param(
            in_context(example(output=[3.0]), example(), example()), "regress", [3, 3], id="BasicExampleListWithContext"
        ),
        pytest.param(
            listed(example(output=[2.0]), example(output=[3.0])), "regress_plus_one", [3, 4], id="ValidNamedSignature"
        ),
    ],
)
def test_C1_C4_C7_regressor(rpc, sent, signature, expected):
    """servables/tensorflow/regressor_test.cc, the tests that the ids name."""
    assert regress(rpc, sent, signature) == expected


@pytest.mark.parametrize(
    ("signature", "message"),
    [
        pytest.param("classes_only", "No regression outputs found in SignatureDef", id="InvalidNamedSignature"),
        pytest.param("outputs_of_rank_3", "but got [1,1,10]", id="MalformedOutputs"),
        pytest.param("absent", "No signature was found with the name: absent", id="MissingRegressionSignature"),
        pytest.param(
            "an_output_too_many",
            "Input batch size did not match output batch size: 1 vs. 2",
            id="UnexpectedOutputTensorSize",
        ),
        pytest.param("outputs_of_strings", "Expected output Tensor of DT_FLOAT", id="UnexpectedOutputTensorType"),
        pytest.param("regress_fails", "Run totally failed", id="RunsFails"),
    ],
)
def test_C5_regressor_refuses(rpc, signature, message):
    """servables/tensorflow/regressor_test.cc, the tests that the ids name."""
    code, text = refusal(regress, rpc, listed(example(output=[2.0])), signature)
    assert code == "INVALID_ARGUMENT" and message in text


@pytest.mark.parametrize("sent", EMPTY)
def test_C2_regressor_input_is_empty(rpc, sent):
    """servables/tensorflow/regressor_test.cc, the tests that the ids name."""
    assert refusal(regress, rpc, sent) == ("INVALID_ARGUMENT", "Input is empty.")


def infer(rpc, *tasks, sent=None):
    """Asks for tasks, each (signature, method) or (signature, method, model)."""
    request = inference_pb2.MultiInferenceRequest(input=listed(example(x=[2.0])) if sent is None else sent)
    for signature, method, *model in tasks:
        request.tasks.add(model_spec=spec(*(model or ["test_model"]), signature=signature), method_name=method)
    return rpc.prediction.MultiInference(request, timeout=30)


@pytest.mark.parametrize(
    ("tasks", "code", "message"),
    [
        pytest.param(
            [("ThisSignatureDoesNotExist", REGRESS)],
            "INVALID_ARGUMENT",
            "signature not found",
            id="UndefinedSignatureTest",
        ),
        pytest.param(
            [("regress_x_to_y", REGRESS), ("regress_x_to_y", REGRESS, "ModelDoesNotExist")],
            "INVALID_ARGUMENT",
            "must access the same model name",
            id="InconsistentModelSpecsInRequestTest",
        ),
        pytest.param(
            [("regress_x_to_y", REGRESS)] * 2,
            "INVALID_ARGUMENT",
            "Duplicate evaluation of signature: regress_x_to_y",
            id="EvaluateDuplicateSignaturesTest",
        ),
        pytest.param(
            [("serving_default", "tensorflow/serving/predict")],
            "UNIMPLEMENTED",
            "Unsupported signature",
            id="UsupportedSignatureTypeTest",
        ),
    ],
)
def test_G2_multi_inference_refuses_tasks(rpc, tasks, code, message):
    """servables/tensorflow/multi_inference_test.cc, the tests that the ids name."""
    found, text = refusal(infer, rpc, *tasks)
    assert found == code and message in text


def test_G2_multi_inference_of_no_input(rpc):
    """servables/tensorflow/multi_inference_test.cc: MissingInputTest."""
    found = refusal(infer, rpc, ("regress_x_to_y", REGRESS), sent=input_pb2.Input())
    assert found == ("INVALID_ARGUMENT", "Input is empty.")


REGRESSED = {3: "regression_result { regressions { value: 3 } }", 4: "regression_result { regressions { value: 4 } }"}
CLASSIFIED = "classification_result { classifications { classes { score: 3 } } }"


@pytest.mark.parametrize(
    ("tasks", "results"),
    [
        pytest.param([("regress_x_to_y", REGRESS)], [REGRESSED[3]], id="ValidSingleSignatureTest"),
        pytest.param(
            [("regress_x_to_y", REGRESS), ("regress_x_to_y2", REGRESS)],
            [REGRESSED[3], REGRESSED[4]],
            id="MultipleValidRegressSignaturesTest",
        ),
        pytest.param(
            [("regress_x_to_y", REGRESS), ("classify_x_to_y", CLASSIFY)],
            [REGRESSED[3], CLASSIFIED],
            id="RegressAndClassifySignaturesTest",
        ),
    ],
)
def test_G2_multi_inference_of_a_tf2_model(rpc, tasks, results):
    """servables/tensorflow/multi_inference_test.cc, the tests that the ids name: each signature has its own input."""
    expected = inference_pb2.MultiInferenceResponse()
    for (signature, _), text in zip(tasks, results, strict=True):
        result = text_format.Parse(text, expected.results.add())
        result.model_spec.CopyFrom(spec("test_model", signature, 123))
    assert infer(rpc, *tasks) == expected


def metadata(rpc, *fields, **given):
    return rpc.prediction.GetModelMetadata(
        get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=fields, **given), timeout=30
    )


def test_G9_empty_or_invalid_metadata_field_list(rpc):
    """servables/tensorflow/get_model_metadata_impl_test.cc: EmptyOrInvalidMetadataFieldList."""
    for fields in ((), ("some_stuff",)):
        assert refusal(metadata, rpc, *fields)[0] == "INVALID_ARGUMENT"
        assert refusal(metadata, rpc, *fields, model_spec=spec())[0] == "INVALID_ARGUMENT"


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({}, "INVALID_ARGUMENT"),
        ({"model_spec": spec("")}, "INVALID_ARGUMENT"),
        ({"model_spec": spec("x")}, "NOT_FOUND"),
    ],
)
def test_G9_metadata_of_a_missing_or_empty_model_spec(rpc, given, code):
    """servables/tensorflow/get_model_metadata_impl_test.cc: MissingOrEmptyModelSpec."""
    assert refusal(metadata, rpc, "signature_def", **given)[0] == code


def test_G9_returns_signatures_for_valid_model(rpc):
    """servables/tensorflow/get_model_metadata_impl_test.cc: ReturnsSignaturesForValidModel."""
    answer = metadata(rpc, "signature_def", model_spec=spec(version=123))
    assert answer.model_spec == spec(version=123) and list(answer.metadata) == ["signature_def"]
    found = get_model_metadata_pb2.SignatureDefMap()
    answer.metadata["signature_def"].Unpack(found)
    names = {
        name for name, value in vars(reference_models.HalfPlusTwo).items() if hasattr(value, "get_concrete_function")
    }
    assert names <= set(found.signature_def)
    assert set(found.signature_def["regress_x_to_y"].outputs) == {"outputs"}


def status(rpc, **given):
    answer = rpc.model.GetModelStatus(get_model_status_pb2.GetModelStatusRequest(**given), timeout=30)
    return {one.version: (one.status.error_code, one.status.error_message) for one in answer.model_version_status}


@pytest.mark.parametrize(
    ("given", "code"),
    [
        pytest.param({}, "INVALID_ARGUMENT", id="MissingOrEmptyModelSpecFailure"),
        pytest.param({"model_spec": spec("nonexistent_model")}, "NOT_FOUND", id="InvalidModelNameFailure"),
        pytest.param({"model_spec": spec("two", version=125)}, "NOT_FOUND", id="InvalidModelVersionFailure"),
    ],
)
def test_S3_status_of_what_is_not_there(rpc, given, code):
    """model_servers/get_model_status_impl_test.cc, the tests that the ids name."""
    assert refusal(status, rpc, **given)[0] == code


def test_S1_S2_status_of_all_versions_and_of_one(rpc):
    """model_servers/get_model_status_impl_test.cc: AllVersionsSuccess, SingleVersionSuccess."""
    assert status(rpc, model_spec=spec("two")) == {123: (0, ""), 124: (0, "")}
    assert status(rpc, model_spec=spec("two", version=123)) == {123: (0, "")}


@pytest.mark.parametrize("is_checked", [True, False])
def test_C6_method_name_check(tmp_path, is_checked):
    """predict_util_test.cc, classifier_test.cc and regressor_test.cc under servables/tensorflow/: MethodNameCheck."""
    methods = {"serving_default": "not/supported/method", "classify_x_to_y": CLASSIFY, "regress_x_to_y": REGRESS}
    reference_models.save(reference_models.HalfPlusTwo(), tmp_path / "m" / "1", methods)
    flags = [f"--model_base_path={tmp_path / 'm'}", "--model_name=m"]
    flags.append(f"--enable_signature_method_name_check={str(is_checked).lower()}")

    def outcome(call, request):
        try:
            call(request, timeout=30)
        except grpc.RpcError as error:
            return error.code().name
        return "OK"

    sent = listed(example(x=[2.0]))
    with servers.start(flags) as addresses, Rpc(addresses.grpc) as rpc:
        plain = predict_pb2.PredictRequest(model_spec=spec("m"))
        plain.inputs["x"].CopyFrom(tf.make_tensor_proto(np.float32(2)))
        assert outcome(rpc.prediction.Predict, plain) == ("INTERNAL" if is_checked else "OK")
        for call, kind, right, wrong in (
            (rpc.prediction.Classify, classification_pb2.ClassificationRequest, "classify_x_to_y", "classify_x2_to_y3"),
            (rpc.prediction.Regress, regression_pb2.RegressionRequest, "regress_x_to_y", "regress_x_to_y2"),
        ):
            assert outcome(call, kind(model_spec=spec("m", right), input=sent)) == "OK"
            found = outcome(call, kind(model_spec=spec("m", wrong), input=sent))
            # Without the check, a classifier of numbers in place of strings fails at its input's type.
            expected = "OK" if wrong == "regress_x_to_y2" and not is_checked else "INVALID_ARGUMENT"
            assert found == expected
