"""The deploy files against the schemas of what reads them, against each other, and against the local server."""

import copy
import re
import shutil
import subprocess
import sys
from importlib import metadata

import httpx
import kubernetes_validate
import pytest
import yaml

from ctrpipe.common.errors import InputError
from ctrpipe.serving.server import parse_flags, running_server
from tests.fuzz.servable import record_warmup, save
from tests.serving.deploy_files import CONFIG, FOLDER, by_kind, compose, container, documents, flags, options

KUBERNETES = ("1.27", "1.37")  # the oldest and newest that is checked
# What KServe adds to a container and to a pod (its v1beta1 CustomResourceDefinition).
KSERVE_MODEL = {"modelFormat", "protocolVersion", "runtime", "runtimeVersion", "storageUri", "storage"}
KSERVE_PREDICTOR = {"minReplicas", "maxReplicas", "scaleMetric", "scaleTarget", "containerConcurrency", "model"}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    record_warmup(save(folder / "ctr" / "1"))
    return folder


def invalid(document, version):
    try:
        kubernetes_validate.validate(document, version, strict=True)
    except kubernetes_validate.ValidationError as error:
        return str(error)


@pytest.mark.parametrize("version", KUBERNETES)
def test_the_manifests_are_valid_in_kubernetes(version):
    found = documents("kubernetes")
    kinds = {document["kind"] for document in found}
    assert kinds == {
        "Deployment",
        "Service",
        "HorizontalPodAutoscaler",
        "PodDisruptionBudget",
        "PersistentVolumeClaim",
        "NetworkPolicy",
    }
    for document in found:
        assert not invalid(document, version)
    wrong = copy.deepcopy(by_kind("Deployment"))
    wrong["spec"]["template"]["spec"]["containers"][0]["readynessProbe"] = {}
    assert invalid(wrong, version)


def test_the_manifests_name_each_other():
    deployment = by_kind("Deployment")
    pod = deployment["spec"]["template"]
    labels, name = pod["metadata"]["labels"], deployment["metadata"]["name"]
    selectors = [
        deployment["spec"]["selector"]["matchLabels"],
        by_kind("PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
    ]
    services = [document for document in documents("kubernetes") if document["kind"] == "Service"]
    ports = {port["name"] for port in container()["ports"]}
    for selector in selectors + [service["spec"]["selector"] for service in services]:
        assert selector.items() <= labels.items()
    assert {port["targetPort"] for service in services for port in service["spec"]["ports"]} == ports
    assert by_kind("HorizontalPodAutoscaler")["spec"]["scaleTargetRef"]["name"] == name
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    claim = by_kind("PersistentVolumeClaim")["metadata"]["name"]
    assert volumes["models"]["persistentVolumeClaim"]["claimName"] == claim
    assert {mount["name"] for mount in container()["volumeMounts"]} == set(volumes)
    generated = yaml.safe_load((CONFIG / "kustomization.yaml").read_text())["configMapGenerator"]
    mounted = {source["configMap"]["name"] for source in volumes["config"]["projected"]["sources"]}
    assert mounted == {entry["name"] for entry in generated}
    assert {file for entry in generated for file in entry["files"]} == {file.name for file in CONFIG.glob("*.config")}


def test_only_pods_with_a_label_reach_the_ports():
    policy = by_kind("NetworkPolicy")["spec"]
    pod = by_kind("Deployment")["spec"]["template"]
    assert policy["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    assert policy["policyTypes"] == ["Ingress", "Egress"] and policy["egress"] == []
    senders = {}
    for rule in policy["ingress"]:
        [port] = rule["ports"]
        senders[port["port"]] = [source.get("podSelector", {}).get("matchLabels") for source in rule["from"]]
    assert senders == {"http": [{"ctr-serving/rest": "true"}, None], "grpc": [{"ctr-serving/grpc": "true"}]}
    assert set(senders) == {port["name"] for port in container()["ports"]}


def test_the_pods_run_without_rights():
    pod = by_kind("Deployment")["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"] > 0
    assert not pod["automountServiceAccountToken"]
    rights = container()["securityContext"]
    assert rights["readOnlyRootFilesystem"] and not rights["allowPrivilegeEscalation"]
    assert rights["capabilities"] == {"drop": ["ALL"]}
    assert {"cpu", "memory"} == set(container()["resources"]["requests"])


@pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl is not installed")
@pytest.mark.parametrize("folder", ["kubernetes", "kserve"])
def test_kustomize_builds_what_kubernetes_takes(folder):
    built = subprocess.run(["kubectl", "kustomize", FOLDER / folder], capture_output=True, text=True, timeout=60)
    assert built.returncode == 0, built.stderr
    found = list(yaml.safe_load_all(built.stdout))
    for document in found:
        assert document["kind"] == "InferenceService" or not invalid(document, KUBERNETES[-1])
    hashed = next(name for name in (one["metadata"]["name"] for one in found) if name.startswith("ctr-serving-config-"))
    assert built.stdout.count(hashed) == 2  # the ConfigMap and who mounts it


def test_the_inference_service_is_a_valid_pod_and_what_kserve_adds():
    service = by_kind("InferenceService", "kserve")
    assert set(service) == {"apiVersion", "kind", "metadata", "spec"}
    assert service["apiVersion"] == "serving.kserve.io/v1beta1" and set(service["spec"]) == {"predictor"}
    predictor = dict(service["spec"]["predictor"])
    model = predictor.pop("model")
    pod = {key: value for key, value in predictor.items() if key not in KSERVE_PREDICTOR}
    own = {key: value for key, value in model.items() if key not in KSERVE_MODEL}
    pod["containers"] = [{"name": "kserve-container", "image": "tensorflow/serving", **own}]
    for version in KUBERNETES:
        assert not invalid({"apiVersion": "v1", "kind": "Pod", "metadata": service["metadata"], "spec": pod}, version)
    assert model["modelFormat"] == {"name": "tensorflow", "version": "2"}
    assert model["storageUri"] == f"pvc://{by_kind('PersistentVolumeClaim')['metadata']['name']}/ctr"
    assert model["readinessProbe"]["httpGet"]["path"] == f"/v1/models/{service['metadata']['name']}/metadata"
    assert predictor["minReplicas"] <= predictor["maxReplicas"] and predictor["scaleMetric"] in ("cpu", "memory")


@pytest.mark.slow
def test_the_compose_file_follows_the_specification(tmp_path):
    def check(file):
        command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", file]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    good = check(FOLDER / "compose" / "compose.yaml")
    assert good.returncode == 0, good.stdout
    wrong = compose()
    wrong["services"]["serving"]["comand"] = wrong["services"]["serving"].pop("command")
    (tmp_path / "compose.yaml").write_text(yaml.safe_dump(wrong))
    assert check(tmp_path / "compose.yaml").returncode != 0


def test_the_compose_file_mounts_what_is_there():
    mounts = [volume for service in compose()["services"].values() for volume in service["volumes"]]
    sources = [volume["source"] for volume in mounts if "$" not in volume["source"]]
    assert sources and all((FOLDER / "compose" / source).exists() for source in sources)
    assert all(volume["read_only"] for volume in mounts)
    ports = [port for service in compose()["services"].values() for port in service["ports"]]
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_no_image_is_older_than_the_tensorflow_that_writes_the_models():
    ours = [int(part) for part in metadata.version("tensorflow").split(".")[:2]]
    model = by_kind("InferenceService", "kserve")["spec"]["predictor"]["model"]
    images = [compose()["services"]["serving"]["image"], container()["image"], f"kserve:{model['runtimeVersion']}"]
    for image in images:
        assert [int(part) for part in image.partition("@")[0].rpartition(":")[2].split(".")[:2]] >= ours


@pytest.mark.slow
@pytest.mark.parametrize("way", flags())
def test_the_server_takes_the_flags_and_their_files(way, models):
    with running_server(options(flags()[way], models)) as server:
        answer = httpx.post(f"{server.rest}/v1/models/ctr:predict", content='{"instances": [2]}', trust_env=False)
        assert answer.json() == {"predictions": [3.0]}
        assert httpx.get(f"{server.rest}/monitoring/prometheus/metrics", trust_env=False).status_code == 200
        if way != "kserve":
            labelled = f"{server.rest}/v1/models/ctr/labels/stable:predict"
            assert httpx.post(labelled, content='{"instances": [2]}', trust_env=False).status_code == 200


@pytest.mark.slow
def test_the_probes_are_answered_once_a_version_is_available(models, tmp_path):
    probes = {kind: container()[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "readiness", "liveness")}
    with running_server(options(flags()["kubernetes"], models)) as server:
        for path in probes.values():
            assert httpx.get(server.rest + path, trust_env=False).status_code == 200
        assert _compose_healthcheck(server.rest) == 0
    record_warmup(save(tmp_path / "ctr" / "1"), input_name="absent")
    flags_of_pods = [*flags()["kubernetes"], "--max_num_load_retries=0"]
    with pytest.raises(InputError, match="did not become available"), running_server(options(flags_of_pods, tmp_path)):
        pass
    models_elsewhere = tmp_path / "models.config"
    models_elsewhere.write_text("model_config_list {}")
    with running_server(parse_flags([f"--model_config_file={models_elsewhere}"])) as server:
        assert httpx.get(server.rest + probes["readiness"], trust_env=False).status_code == 404
        assert _compose_healthcheck(server.rest) != 0


def _compose_healthcheck(url):
    command = compose()["services"]["serving"]["healthcheck"]["test"]
    script = command[-1].replace("$$", "$").replace("8501", re.search(r":(\d+)$", url)[1])
    return subprocess.run([*command[1:-1], script], timeout=30).returncode
