"""`ctrpipe canary` on the manifest of a KServe InferenceService."""

import pathlib

import pytest
import yaml

from tests.e2e.small_run import call, one_line

SERVICE = pathlib.Path(__file__).parents[2] / "serving" / "deploy" / "kserve" / "inference_service.yaml"
MODE = "serving.kserve.io/deploymentMode"


@pytest.fixture
def manifest(tmp_path):
    document = yaml.safe_load(SERVICE.read_text())
    document["metadata"]["annotations"][MODE] = "Knative"
    document["spec"]["predictor"] |= {"scaleMetric": "concurrency", "scaleTarget": 20}
    document["spec"]["predictor"]["model"]["storageUri"] = "pvc://ctr-data/runs/demo/models/ctr"
    (tmp_path / "service.yaml").write_text(yaml.safe_dump(document))
    return tmp_path / "service.yaml"


def canary(manifest, *arguments):
    return call("canary", "ctr", *arguments, "--inference_service", manifest)


def moved(manifest, *arguments):
    code, output = canary(manifest, *arguments)
    assert code == 0 and f"kubectl apply -f {manifest}" in output, output
    return predictor(manifest), output


def predictor(manifest):
    return yaml.safe_load(manifest.read_text())["spec"]["predictor"]


def served(found):
    """The version that the pods of a predictor serve, and its share."""
    [mount] = [mount for mount in found["model"]["volumeMounts"] if mount["mountPath"].startswith("/mnt/models")]
    [volume] = [volume for volume in found["volumes"] if volume["name"] == mount["name"]]
    assert volume["persistentVolumeClaim"] == {"claimName": "ctr-data", "readOnly": True} and mount["readOnly"]
    version = mount["mountPath"].removeprefix("/mnt/models/")
    assert mount["subPath"] == f"runs/demo/models/ctr/{version}"
    return int(version), found.get("canaryTrafficPercent")


def test_a_canary_gets_its_share_and_becomes_stable(manifest):
    before = predictor(manifest)
    found, output = moved(manifest, "stable=12")
    assert served(found) == (12, None) and output.splitlines()[0] == "stable\t12\t100%"
    assert "storageUri" not in found["model"]
    found, output = moved(manifest, "canary=13", "--share", 10)
    assert served(found) == (13, 10) and output.splitlines()[:2] == ["canary\t13\t10%", "stable\t12\t90%"]
    assert served(moved(manifest, "canary=13", "--share", 50)[0]) == (13, 50)
    code, output = canary(manifest)
    assert code == 0 and "canary\t13\t50%" in output and "--rollback: canary=13 (10%) stable=12" in output
    found, output = moved(manifest, "stable=13")
    assert served(found) == (13, None) and output.splitlines()[0] == "stable\t13\t100%" and "canary" not in found
    # All else stays, such as the flags, the probe and the other volume.
    assert found["model"]["args"] == before["model"]["args"]
    assert [mount for mount in found["model"]["volumeMounts"] if mount["name"] == "config"]
    assert found["model"]["readinessProbe"] == before["model"]["readinessProbe"]


@pytest.mark.parametrize("taken_back", [("--remove", "canary"), ("stable=12",)])
def test_a_canary_that_is_taken_back_gets_no_requests_at_once(manifest, taken_back):
    """Its pods stay the newest revision: another one of the stable version would first have to start."""
    moved(manifest, "stable=12")
    moved(manifest, "canary=13", "--share", 10)
    found, output = moved(manifest, *taken_back)
    assert served(found) == (13, 0) and output.splitlines()[0] == "stable\t12\t100%"
    assert served(moved(manifest, "canary=14", "--share", 5)[0]) == (14, 5)


def test_the_last_change_is_undone_and_redone(manifest):
    first = predictor(manifest)
    moved(manifest, "stable=12")
    moved(manifest, "canary=13", "--share", 25)
    moved(manifest, "stable=13")
    for expected in ((13, 25), (13, None), (13, 25)):
        found, _ = moved(manifest, "--rollback")
        assert served(found) == expected
    assert "stable\t12\t75%" in canary(manifest)[1]
    fresh = manifest.with_name("fresh.yaml")
    fresh.write_text(yaml.safe_dump({**yaml.safe_load(SERVICE.read_text())}))
    one_line(*canary(fresh, "--rollback"), "no change of ctr is kept here to roll back")
    moved(fresh, "stable=7")
    assert moved(fresh, "--rollback")[0] == predictor(SERVICE)
    assert first["model"]["storageUri"] == "pvc://ctr-data/runs/demo/models/ctr"


def test_a_version_of_a_store_is_fetched_below_its_number(manifest):
    document = yaml.safe_load(manifest.read_text())
    document["spec"]["predictor"]["model"]["storageUri"] = "s3://bucket/runs/demo/models/ctr/"
    manifest.write_text(yaml.safe_dump(document))
    moved(manifest, "stable=12")
    found, _ = moved(manifest, "canary=13", "--share", 10)
    assert found["storageUris"] == [{"uri": "s3://bucket/runs/demo/models/ctr/13", "mountPath": "/mnt/models/13"}]
    assert "storageUri" not in found["model"] and found["canaryTrafficPercent"] == 10


@pytest.mark.parametrize("mode", ["Knative", "Serverless"])
def test_a_metric_that_kserve_refuses_with_knative_is_one_line(manifest, mode):
    """Its webhook accepts only the metrics of Knative's own autoscaler, unless Kubernetes' autoscaler is chosen."""
    document = yaml.safe_load(manifest.read_text())
    annotations, predictor_ = document["metadata"]["annotations"], document["spec"]["predictor"]
    annotations[MODE] = mode
    for metric, is_accepted in (("cpu", False), ("memory", False), ("rps", True), (None, True), ("absent", True)):
        predictor_["scaleMetric"] = metric
        if metric == "absent":
            del predictor_["scaleMetric"]
        manifest.write_text(yaml.safe_dump(document))
        code, output = canary(manifest, "stable=12")
        assert (code == 0) == is_accepted, output
        if not is_accepted:
            one_line(code, output, f"with Knative, KServe refuses scaleMetric: {metric}; set concurrency or rps with")
    annotations["autoscaling.knative.dev/class"] = "hpa.autoscaling.knative.dev"
    predictor_["scaleMetric"] = "cpu"
    manifest.write_text(yaml.safe_dump(document))
    moved(manifest, "stable=12")


def test_what_kserve_cannot_do_is_one_line_and_changes_nothing(manifest, tmp_path):
    def refused(*arguments_and_message, file=manifest):
        *arguments, message = arguments_and_message
        before = file.read_text() if file.exists() else None
        one_line(*canary(file, *arguments), message)
        assert before is None or file.read_text() == before

    refused("canary=13", "--share", 10, "no version is stable yet; give stable=VERSION first")
    moved(manifest, "stable=12")
    refused("canary=13", "--share: the percentage of requests for the canary; give both or neither")
    refused("stable=13", "--share", 10, "--share: the percentage of requests for the canary")
    refused(
        "stable=13", "canary=14", "--share", 10, "the requests without the canary go to version 12; give stable=13 by"
    )
    refused("canary=12", "--share", 10, "canary=12: this version is stable already")
    refused("blue=13", "label 'blue': KServe has two, stable and canary")
    refused("--remove", "stable", "--remove: there is always a stable version")
    refused("--rollback", "--share", 10, "--rollback takes no labels")
    refused("stable=13", "--grpc", "localhost:1", "--grpc and --url: KServe itself waits for a version; leave them out")
    refused("stable=13", "--model_config_file", "m", "give either --model_config_file or --inference_service")
    one_line(*call("canary", "other", "--inference_service", manifest), "the InferenceService ctr, not other")
    one_line(*call("canary", "ctr"), "give either --model_config_file or --inference_service")
    one_line(*call("canary", "ctr", "--model_config_file", "m", "--share", 5), "--share: only with --inference_service")
    refused("cannot be read", file=tmp_path / "absent.yaml")
    for number, text in enumerate(("kind: [", "- 1", "kind: Deployment\nmetadata: {name: ctr}")):
        (tmp_path / f"{number}.yaml").write_text(text)
        refused(
            "not valid YAML" if not number else "no InferenceService with a predictor", file=tmp_path / f"{number}.yaml"
        )
    undivided = yaml.safe_load(SERVICE.read_text())
    (tmp_path / "raw.yaml").write_text(yaml.safe_dump(undivided))
    moved(tmp_path / "raw.yaml", "stable=12")
    refused("canary=13", "--share", 10, "KServe divides requests only with Knative", file=tmp_path / "raw.yaml")
    undivided["spec"]["predictor"]["model"]["storageUri"] = "ctr"
    (tmp_path / "none.yaml").write_text(yaml.safe_dump(undivided))
    refused("stable=12", "storageUri names no folder of versions", file=tmp_path / "none.yaml")
    undivided["spec"]["predictor"]["model"]["storageUri"] = "abfss://c@a.dfs.core.windows.net/models/ctr"
    (tmp_path / "azure.yaml").write_text(yaml.safe_dump(undivided))
    refused("stable=12", "KServe does not read abfss://", file=tmp_path / "azure.yaml")
