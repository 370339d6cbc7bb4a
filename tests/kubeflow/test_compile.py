"""The compiled file: what Kubeflow Pipelines and Vertex AI take, and nothing of the machine that compiled it."""

import copy
import dataclasses
import json
import pathlib

import pydantic
import pytest
import yaml
from google.protobuf import json_format
from kfp import components
from kfp.kubernetes import kubernetes_executor_config_pb2
from kfp.pipeline_spec import pipeline_spec_pb2

from ctrpipe.common import extras
from ctrpipe.common.code_version import code_version
from ctrpipe.common.errors import InputError
from ctrpipe.common.store_folders import fetch_file
from ctrpipe.common.store_names import CACHE
from ctrpipe.pipeline.components.log_example_gen import ExampleGenSettings
from ctrpipe.pipeline.components.log_transform import TransformSettings
from ctrpipe.pipeline.components.settings import short_json
from ctrpipe.pipeline.config import Kubeflow, RunConfig, check_config, load_config, read_yaml
from ctrpipe.pipeline.kubeflow import work
from ctrpipe.pipeline.kubeflow.compile import compile_pipeline, pipeline_name, write_package
from ctrpipe.pipeline.kubeflow.nodes import arguments, graph_nodes
from ctrpipe.pipeline.kubeflow.submit import read_package
from ctrpipe.pipeline.kubeflow.task import Task, local_path
from ctrpipe.pipeline.kubeflow.work import prepare
from ctrpipe.pipeline.run.run import resolve
from tests.e2e.small_run import CONFIG, ROOT, call, one_line

KUBEFLOW = {
    "image": "registry.example/ctrpipe:1",
    "volumes": {"ctr-data": "/data"},
    "resources": {
        "default": {"cpu": "500m", "memory": "2Gi"},
        "Trainer": {"cpu": 8, "memory": "16Gi", "accelerator": "nvidia.com/gpu", "node_selector": {"pool": "gpu"}},
        "Trainer.baseline": {"accelerator": "google.com/tpu", "accelerators": 4},
        "GatedEvaluator": {"tolerations": [{}], "retries": 2, "timeout": 3600},
        "AtomicPusher": {"tolerations": [{"key": "a"}, {"key": "b", "value": "c", "effect": "NoExecute"}]},
        "Verdict": {"retries": 2},
    },
    "environment": {"TF_CPP_MIN_LOG_LEVEL": "1", "GREETING": "$(HOME) $HOME"},
    "secrets": {
        "STORE_ID": {"name": "store", "key": "id"},
        "STORE_SECRET": {"name": "store", "key": "secret"},
    },
    "image_pull_secrets": ["registry"],
    "service_account": "steps",
}

PARAMETERS = {"data", "output", "model", "training", "gates", "seed", "settings"}

# Outputs that Kubeflow's pages show. It finds links to viewers by the name of the last output of a training.
DRAWN = {
    "comp-report": {"metrics", "classification", "page"},
    "comp-trainer": {"model", "tensorboard", "mlpipeline_ui_metadata"},
    "comp-trainer-baseline": {"model", "tensorboard", "mlpipeline_ui_metadata"},
    "comp-atomicpusher": {"pushed_model"},
}


def config(**changes):
    values = copy.deepcopy({**CONFIG, "serving": {"bulk_inferrer": True}, "kubeflow": KUBEFLOW})
    return check_config(values | changes, (), "config")


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    file = tmp_path_factory.mktemp("compiled") / "pipeline.yaml"
    names = compile_pipeline(config(), file)
    spec, platform = yaml.load_all(file.read_text(), yaml.CSafeLoader)
    return file, names, spec, platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]


@pytest.mark.slow
def test_the_file_is_a_pipeline_to_kfp_and_to_its_schema(compiled):
    file, names, spec, _ = compiled
    loaded = components.load_component_from_file(str(file))
    assert set(loaded.component_spec.inputs) == PARAMETERS
    parsed = json_format.ParseDict(spec, pipeline_spec_pb2.PipelineSpec())
    shown = [task.task_info.name for task in parsed.root.dag.tasks.values()]
    assert sorted(shown) == sorted(names) and {"LogTransform", "Trainer.baseline", "BulkInferrer"} <= set(names)
    with pytest.raises(json_format.ParseError):
        json_format.ParseDict({**spec, "rooot": {}}, pipeline_spec_pb2.PipelineSpec())


@pytest.mark.slow
def test_every_step_is_a_container_with_types_that_open_source_kubeflow_knows(compiled):
    _, names, spec, _ = compiled
    executors = spec["deploymentSpec"]["executors"]
    assert len(executors) == len(names) and all(set(found) == {"container"} for found in executors.values())
    for found in executors.values():
        container = found["container"]
        assert container["image"] == KUBEFLOW["image"] and "--module_file" not in container["args"]
        assert container["command"] == ["python", "-m", "ctrpipe.pipeline.kubeflow.step"]
        assert container["args"][container["args"].index("--code_version") + 1] == code_version()
    titles = {
        artifact["artifactType"]["schemaTitle"]
        for component in spec["components"].values()
        for side in ("inputDefinitions", "outputDefinitions")
        for artifact in component.get(side, {}).get("artifacts", {}).values()
    }
    kinds = {"Artifact", "Dataset", "Model", "Metrics", "ClassificationMetrics", "HTML"}
    assert titles == {f"system.{kind}" for kind in kinds}
    outputs = {
        key: found["outputDefinitions"]["artifacts"] for key, found in spec["components"].items() if key in DRAWN
    }
    assert {key: set(found) for key, found in outputs.items()} == DRAWN
    assert outputs["comp-atomicpusher"]["pushed_model"]["artifactType"]["schemaTitle"] == "system.Model"


def test_the_graph_is_that_of_a_run_here(compiled):
    _, _, spec, _ = compiled
    tasks = spec["root"]["dag"]["tasks"]
    by_name = {task["taskInfo"]["name"]: key for key, task in tasks.items()}
    for stage in graph_nodes(config()):
        inputs = tasks[by_name[stage.name]].get("inputs", {}).get("artifacts", {})
        sources = {name: found["taskOutputArtifact"] for name, found in inputs.items()}
        assert {name: (found["producerTask"], found["outputArtifactKey"]) for name, found in sources.items()} == {
            name: (by_name[node], output) for name, (node, output) in stage.inputs.items()
        }
    uncached = {name for name, key in by_name.items() if not tasks[key].get("cachingOptions", {}).get("enableCache")}
    assert uncached == {"Prepare", "Report", "Verdict"}


def sources(spec):
    """What each step's inputs come from: a step's output or a constant, found through the groups."""
    found = {}

    def output(tasks, task, name):
        dag = spec["components"][tasks[task]["componentRef"]["name"]].get("dag")
        if not dag:
            return tasks[task]["taskInfo"]["name"], name
        [selector] = dag["outputs"]["artifacts"][name]["artifactSelectors"]
        return output(dag["tasks"], selector["producerSubtask"], selector["outputArtifactKey"])

    def source(tasks, described, given):
        match described:
            case {"componentInputArtifact": name} | {"componentInputParameter": name}:
                return given.get(name, name)
            case {"taskOutputArtifact": {"producerTask": task, "outputArtifactKey": name}}:
                return output(tasks, task, name)
            case {"taskOutputParameter": {"producerTask": task, "outputParameterKey": name}}:
                return output(tasks, task, name)
            case {"runtimeValue": value}:
                return value["constant"]

    def visit(tasks, given):
        for task in tasks.values():
            sides = task.get("inputs", {}).values()
            inputs = {name: source(tasks, described, given) for side in sides for name, described in side.items()}
            if dag := spec["components"][task["componentRef"]["name"]].get("dag"):
                visit(dag["tasks"], inputs)
            else:
                found[task["taskInfo"]["name"]] = inputs, task["cachingOptions"]

    visit(spec["root"]["dag"]["tasks"], {})
    return found


def test_groups_hold_the_same_steps_with_the_same_inputs_and_settings(tmp_path):
    """Of the configuration with every step that a run may have."""
    every = {
        "evaluation": {"baseline": {"name": "lr"}, "seeds": 2},
        "monitoring": {"previous": ["/data/before.tsv"], "block": True},
    }
    made = {}
    for groups in (False, True):
        file = tmp_path / f"{groups}.yaml"
        names = compile_pipeline(config(**every, kubeflow={**KUBEFLOW, "groups": groups}), file)
        made[groups] = [*yaml.load_all(file.read_text(), yaml.CSafeLoader), read_package(file)]
    (flat, flat_pods, flat_package), (spec, pods, package) = made.values()
    json_format.ParseDict(spec, pipeline_spec_pb2.PipelineSpec())
    assert spec["deploymentSpec"] == flat["deploymentSpec"] and pods == flat_pods
    assert spec["components"].items() > flat["components"].items()
    assert sources(spec) == sources(flat) and set(sources(spec)) == set(names)
    assert {group.name: set(group.steps.values()) for group in package.groups.values()} == {
        "Data": {"ImportSchemaGen", "LogExampleGen", "LogStatisticsGen", "LogTransform", "DriftCheck"}
        | {"ExampleValidator"},
        "Models": {"LastBlessedModel", "SeedTrainings", "Trainer", "Trainer.baseline"},
        "Gates": {"GatedEvaluator", "ServingCheck", "DriftGate"},
        "Push and report": {"AtomicPusher", "BulkInferrer", "ExamplesForInference", "Report", "Verdict"},
    }
    root = [task["taskInfo"]["name"] for task in spec["root"]["dag"]["tasks"].values()]
    assert sorted(root) == ["Data", "Gates", "Models", "Prepare", "Push and report"]
    assert package.steps.items() == flat_package.steps.items() and next(iter(package.steps)) == "prepare"


def test_parameters_have_descriptions_for_kubeflows_form(compiled):
    _, _, spec, _ = compiled
    described = spec["root"]["inputDefinitions"]["parameters"]
    assert set(described) == PARAMETERS
    assert all(len(found["description"]) > 20 for found in described.values())
    assert spec["pipelineInfo"]["description"].startswith("attention_net on the log e2e; code ")


def test_the_file_names_the_service_account_with_which_it_is_submitted(compiled, tmp_path):
    """Kubeflow's format has no place for it: only a run has one."""
    assert read_package(compiled[0]).account == "steps"
    text = compiled[0].read_text().partition("\n")[2]
    (tmp_path / "without.yaml").write_text(text)
    assert read_package(tmp_path / "without.yaml").account is None


def test_the_file_may_be_in_a_store(compiled, s3, monkeypatch, tmp_path):
    monkeypatch.setenv(CACHE, str(tmp_path))
    url = f"{s3.url}/pipeline.yaml"
    write_package(url, compiled[0].read_text())
    fetched = read_package(fetch_file(url))
    assert dataclasses.replace(fetched, path=compiled[0]) == read_package(compiled[0])
    with pytest.raises(InputError, match="no such bucket"):
        write_package(f"{s3.url}-none/pipeline.yaml", "")


def test_no_path_of_this_machine_is_in_the_file(compiled):
    text = compiled[0].read_text()
    assert not [path for path in (ROOT, compiled[0].parent, pathlib.Path.home()) if str(path) in text]
    assert "/tmp" not in text


def test_steps_get_their_resources_and_volumes(compiled):
    _, _, spec, platform = compiled
    found = spec["deploymentSpec"]["executors"]
    executors = {key: executor["container"].get("resources", {}) for key, executor in found.items()}
    assert executors["exec-trainer"]["resourceCpuRequest"] == executors["exec-trainer"]["resourceCpuLimit"] == "8"
    assert executors["exec-trainer"]["resourceMemoryRequest"] == "16Gi"
    assert executors["exec-trainer"]["accelerator"]["resourceType"] == "nvidia.com/gpu"
    assert executors["exec-logtransform"]["resourceCpuRequest"] == "500m"
    tpu = executors["exec-trainer-baseline"]["accelerator"]
    assert (tpu["resourceType"], tpu["resourceCount"]) == ("google.com/tpu", "4")
    assert "accelerator" not in executors["exec-logtransform"]
    assert set(platform) == set(executors)
    for found in platform.values():
        assert [(mount["constant"], mount["mountPath"]) for mount in found["pvcMount"]] == [("ctr-data", "/data")]
    assert platform["exec-trainer"]["nodeSelector"]["labels"] == {"pool": "gpu"}


def test_steps_get_what_kubernetes_must_know_of_their_pods(compiled):
    _, _, spec, platform = compiled
    assert platform["exec-gatedevaluator"]["tolerations"] == [{"operator": "Exists"}]
    assert platform["exec-atomicpusher"]["tolerations"] == [
        {"key": "a", "operator": "Exists"},
        {"key": "b", "operator": "Equal", "value": "c", "effect": "NoExecute"},
    ]
    assert platform["exec-gatedevaluator"]["activeDeadlineSeconds"] == "3600"
    assert not {"tolerations", "activeDeadlineSeconds"} & set(platform["exec-trainer"])
    for found in platform.values():
        json_format.ParseDict(found, kubernetes_executor_config_pb2.KubernetesExecutorConfig())
        secrets = {
            mapped["envVar"]: (secret["secretNameParameter"]["runtimeValue"]["constant"], mapped["secretKey"])
            for secret in found["secretAsEnv"]
            for mapped in secret["keyToEnv"]
        }
        assert secrets == {"STORE_ID": ("store", "id"), "STORE_SECRET": ("store", "secret")}
        [pull] = found["imagePullSecret"]
        assert pull["secretNameParameter"]["runtimeValue"]["constant"] == "registry"
    for found in spec["deploymentSpec"]["executors"].values():
        given = {entry["name"]: entry["value"] for entry in found["container"]["env"]}
        # Kubernetes makes $( of $$(, and would put another variable in the place of $(HOME).
        assert given == {"TF_CPP_MIN_LOG_LEVEL": "1", "GREETING": "$$(HOME) $HOME"}
    tasks = spec["root"]["dag"]["tasks"]
    assert {key: task["retryPolicy"]["maxRetryCount"] for key, task in tasks.items() if "retryPolicy" in task} == {
        "gatedevaluator": 2
    }


@pytest.mark.slow
def test_without_the_cache_no_step_is_taken_from_it(tmp_path):
    spec = vertex_job(tmp_path / "job.json", cache=False)["pipelineSpec"]  # JSON is written in a tenth of YAML's time
    options = [task.get("cachingOptions", {}).get("enableCache") for task in spec["root"]["dag"]["tasks"].values()]
    assert len(options) > 10 and not any(options)


@pytest.mark.slow
def test_vertex_ai_gets_a_pipeline_job(tmp_path):
    with pytest.raises(InputError, match="kubeflow.secrets: Vertex AI has no Kubernetes secrets"):
        compile_pipeline(config(data=ON_VERTEX), tmp_path / "job.json", vertex=True)
    job = vertex_job(tmp_path / "job.json")
    assert not [path for path in (ROOT, tmp_path, "/tmp") if str(path) in (tmp_path / "job.json").read_text()]
    assert set(job) == {"displayName", "pipelineSpec", "runtimeConfig", "serviceAccount"}
    assert job["displayName"] == CONFIG["name"] and job["serviceAccount"] == "ctrpipe@project.iam"
    json_format.ParseDict(job["pipelineSpec"], pipeline_spec_pb2.PipelineSpec())
    defaults = job["pipelineSpec"]["root"]["inputDefinitions"]["parameters"]
    assert defaults["data"]["defaultValue"] == ["/gcs/bucket/log.tsv"]
    with pytest.raises(InputError, match="put it below /gcs"):
        compile_pipeline(config(data={**CONFIG["data"], "paths": ["/data/log.tsv"]}), tmp_path / "j", vertex=True)


ON_VERTEX = {**CONFIG["data"], "paths": ["/gcs/bucket/log.tsv"]}

ON_VERTEX_TOO = {"secrets": {}, "service_account": "ctrpipe@project.iam"}


def vertex_job(file: pathlib.Path, **changes) -> dict:
    compile_pipeline(config(data=ON_VERTEX, kubeflow={**KUBEFLOW, **ON_VERTEX_TOO, **changes}), file, vertex=True)
    return json.loads(file.read_text())


@pytest.mark.large(like="tests/kubeflow/test_compile.py::test_vertex_ai_gets_a_pipeline_job")
def test_the_job_is_one_to_vertex_ais_client(tmp_path):
    """The client takes nine seconds of a core to import."""
    from google.cloud import aiplatform_v1

    job = vertex_job(tmp_path / "job.json")
    parsed = json_format.ParseDict(job, aiplatform_v1.PipelineJob.pb(aiplatform_v1.PipelineJob()))
    assert parsed.display_name == CONFIG["name"]


@pytest.mark.parametrize(
    ("name", "settings", "more"),
    [
        ("demo", ["serving.bulk_inferrer=true"], {"ExamplesForInference", "BulkInferrer"}),
        ("demo", ["monitoring={previous: [/data/a.tsv], serving: [/data/b.tsv]}"], {"DriftCheck"}),
        ("demo", ["monitoring={previous: [/data/a.tsv], block: true}"], {"DriftCheck", "DriftGate"}),
        ("demo", ["evaluation.seeds=3"], {"SeedTrainings"}),
        ("demo_text", [], set()),
        ("demo_text", ["model.encoder=/data/encoder"], set()),
        ("kddcup2012/bert4ctr", ["data.paths=[/data/track2]"], set()),
        ("kddcup2012/cascading_nn_gbdt", ["evaluation.baseline={name: lr}"], {"Trainer.baseline"}),
    ],
)
def test_configurations_of_every_kind_compile(name, settings, more, tmp_path):
    file = tmp_path / "pipeline.yaml"
    places = ("kubeflow.image=i", "kubeflow.volumes={ctr-data: /data}")
    names = compile_pipeline(load_config(ROOT / "configs" / f"{name}.yaml", (*places, *settings)), file)
    optional = {"ExamplesForInference", "BulkInferrer", "DriftCheck", "DriftGate", "Trainer.baseline", "SeedTrainings"}
    always = {"Trainer.baseline"} if name.startswith("demo") else set()
    assert set(names) & optional == more | always
    parsed = json_format.ParseDict(next(yaml.safe_load_all(file.read_text())), pipeline_spec_pb2.PipelineSpec())
    assert sorted(task.task_info.name for task in parsed.root.dag.tasks.values()) == sorted(names)
    assert components.load_component_from_file(str(file)).component_spec.name == parsed.pipeline_info.name


@pytest.mark.parametrize("setting", ["text.encoder", "model.encoder"])
def test_a_checkpoint_must_be_in_the_volume(setting, tmp_path):
    def compiled_with(encoder):
        values = read_yaml((ROOT / "configs" / "demo_text.yaml").read_text())
        if setting == "text.encoder":
            values["features"][-1] = {"columns": ["query"], "kind": "text", "length": 8, "encoder": encoder}
        else:
            values["model"]["encoder"] = encoder
        values["kubeflow"] = {"image": "i", "volumes": {"ctr-data": "/data"}}
        return compile_pipeline(check_config(values, (), "config"), tmp_path / "pipeline.yaml")

    assert "Trainer" in compiled_with("/data/encoder")
    for encoder in ("checkpoints/bert", "/home/ann/bert", "hf://owner/name"):
        with pytest.raises(InputError, match=f"^{setting}: {encoder} is not visible to the steps in the cluster"):
            compiled_with(encoder)


def test_log_and_models_in_a_store_need_no_volume(tmp_path):
    places = {"image": "i", "volumes": {}, "output": "s3://bucket/runs/mine"}
    values = {**CONFIG, "kubeflow": places, "data": {**CONFIG["data"], "paths": ["gs://logs/day=*/*.parquet"]}}
    compile_pipeline(check_config(values, (), "config"), tmp_path / "pipeline.yaml")
    text = (tmp_path / "pipeline.yaml").read_text()
    assert "s3://bucket/runs/mine" in text and "gs://logs/day=*/*.parquet" in text and "pvcMount" not in text
    with pytest.raises(InputError, match="kubeflow.output"):
        check_config({**values, "kubeflow": {**places, "output": "https://host/runs"}}, (), "config")


def test_what_cannot_run_on_a_cluster_is_one_line(tmp_path):
    file = tmp_path / "config.yaml"

    def compile_with(*settings, **kubeflow):
        file.write_text(yaml.safe_dump({**CONFIG, "kubeflow": {**KUBEFLOW, **kubeflow}}))
        sets = [part for setting in settings for part in ("--set", setting)]
        return call("compile", file, "--output", tmp_path / "p.yaml", *sets)

    one_line(*compile_with("data.paths=[log.tsv]"), "data.paths: log.tsv is not visible to the steps in the cluster")
    one_line(*compile_with("data.paths=[/data/../log.tsv]"), "put it below /data")
    one_line(*compile_with("data.paths=[s3://key:secret@b/log.tsv]"), "s3://b/log.tsv: the URL has credentials in it")
    one_line(*compile_with("beam_args=[--x=y]", output="s3://bucket/runs/a"), "kubeflow.output: Beam's workers need")
    one_line(*compile_with("model.name=nosuch"), "model: There is no model 'nosuch'")
    one_line(*compile_with("evaluation.baseline={name: lr, rate: 2}"), "evaluation.baseline: lr has no hyperparameter")
    one_line(*compile_with("monitoring.previous=[/logs/a]"), "monitoring.previous: /logs/a is not visible")
    teacher = "training.distillation.teacher"
    one_line(*compile_with(f"{teacher}=runs/a/models/ctr"), f"{teacher}: runs/a/models/ctr is not visible")
    one_line(*compile_with("training.distribution=multi_worker"), "training.distribution: a step is one pod; compile")
    dask = "beam_args=[--runner=apache_beam.runners.dask.dask_runner.DaskRunner]"
    one_line(*compile_with(dask, "serving.bulk_inferrer=true"), "does not run on Beam's DaskRunner")
    one_line(*compile_with(output="/elsewhere/runs"), "kubeflow.output: /elsewhere/runs is not visible")
    one_line(*compile_with(image=None), "kubeflow.image: name the image")
    one_line(*compile_with(volumes={}), "kubeflow.volumes: name the PersistentVolumeClaim")
    one_line(*compile_with(resources={"Trainr": {"cpu": 1}}), "kubeflow.resources: Trainr is not a step")
    one_line(*compile_with(resources={"Trainer": {"gpu": 1}}), "kubeflow.resources.Trainer.gpu: unknown key")
    one_line(*compile_with(resources={"Trainer": {"memory": "8 GB"}}), "kubeflow.resources.Trainer.memory: String")
    one_line(*compile_with(resources={"Trainer": {"retries": -1}}), "kubeflow.resources.Trainer.retries: ")
    taint = {"tolerations": [{"value": "gpu"}]}
    one_line(*compile_with(resources={"Trainer": taint}), "value: give the taint's key too")
    one_line(*compile_with(environment={"A-B": "1"}), "kubeflow.environment")
    one_line(*compile_with(service_account="Ctr Pipe"), "kubeflow.service_account: 'Ctr Pipe' is not a service account")
    one_line(*compile_with("name=" + "n" * 64), "name: String should have at most 63 characters")  # TFX's limit
    one_line(*compile_with(environment={"A": "{{workflow.name}}"}), "kubeflow.environment.A: Argo would replace what")
    one_line(*compile_with("data.paths=['/data/{{day}}.tsv']"), "data.paths: Argo would replace what follows {{ in")
    gpu = {"Trainer": {"accelerator": "NVIDIA_TESLA_T4"}}
    one_line(
        *compile_with(resources=gpu), "kubeflow.resources.Trainer.accelerator: 'NVIDIA_TESLA_T4' is not a resource"
    )
    one_line(*compile_with(secrets={"TOKEN": {"name": "hub"}}), "kubeflow.secrets.TOKEN.key")
    assert not (tmp_path / "p.yaml").exists()


def refusal(step=None, **kubeflow):
    """The error for settings of the section kubeflow, or of its step Trainer. None if they are accepted."""
    given = {**kubeflow, **({"resources": {"Trainer": step}} if step else {})}
    try:
        Kubeflow.model_validate(given)
    except pydantic.ValidationError as error:
        [found] = error.errors()
        return found["msg"].removeprefix("Value error, ")
    return None


DIGEST = f"@sha256:{64 * 'a'}"


@pytest.mark.parametrize(
    "image",
    [
        "i",
        "ctrpipe:latest",
        f"localhost:5000/team/ctrpipe{DIGEST}",
        f"registry.example:5000/a_b/c.d:1{DIGEST}",
        "Registry.example/ctr:1",
        "[::1]:5000/ctr",
        "us-docker.pkg.dev/project-x/repo/ctrpipe:2026-11-28",
    ],
)
def test_images_of_every_registry_are_taken(image):
    assert refusal(image=image) is None


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"image": "https://registry/ctr:1"}, "'https://registry/ctr:1' is not an image; write HOST:PORT/NAME:TAG"),
        ({"image": "registry/CTR:1"}, "is not an image"),
        ({"image": "registry/ctr pipe"}, "is not an image"),
        ({"image": "реестр/ctr"}, "is not an image"),
        ({"image": "registry/ctr@sha256:abc"}, "is not an image"),
        ({"image": "{{workflow.name}}"}, "is not an image"),
        ({"service_account": "ctr_pipe"}, "'ctr_pipe' is not a service account; write lower-case letters and digits"),
        ({"service_account": "a" * 254}, "has 254 characters; a service account has 253 at most"),
        ({"image_pull_secrets": ["a..b"]}, "'a..b' is not a name of Kubernetes"),
        ({"image_pull_secrets": ["a", "a"]}, "image_pull_secrets: a appears twice"),
        ({"secrets": {"A": {"name": "store", "key": "a b"}}}, "'a b' is not a key of a secret"),
        ({"secrets": {"A": {"name": "s", "key": "k"}}, "environment": {"A": "1"}}, "secrets: A is in environment too"),
        ({"volumes": {"ctr.data": "/data"}}, "'ctr.data' is not a claim that Kubeflow mounts"),
        ({"volumes": {"a": "/data/../x"}}, "'/data/../x' is not a folder to mount"),
        ({"volumes": {"a": "/da:ta"}}, "is not a folder to mount"),
        ({"volumes": {"a": "/data", "b": "/data"}}, "volumes: /data appears twice"),
        ({"step": {"cpu": "0.0"}}, "0.0 gives the step nothing; give more, or leave it out"),
        ({"step": {"memory": "0Gi"}}, "0Gi gives the step nothing"),
        ({"step": {"memory": "8K"}}, "String should match"),  # Kubernetes has k and Ki
        ({"step": {"memory": "1.5Gi"}}, "String should match"),
        ({"step": {"node_selector": {"пул": "x"}}}, "'пул' is not a key of Kubernetes"),
        ({"step": {"node_selector": {"pool": "a" * 64}}}, "a value of Kubernetes has 63 at most"),
        ({"step": {"node_selector": {"a/b/c": "x"}}}, "'a/b/c' is not a key of Kubernetes"),
        ({"step": {"tolerations": [{"key": "a", "value": "b c"}]}}, "'b c' is not a value of Kubernetes"),
        ({"step": {"retries": 10**12}}, "less than or equal to 1000"),
        ({"step": {"timeout": 2**31}}, "less than or equal to 2147483647"),
    ],
)
def test_what_a_cluster_would_refuse_hours_later_is_refused_now(settings, said):
    found = refusal(**settings)
    assert found is not None and said in found


def test_odd_names_that_kubernetes_has_are_taken():
    secrets = {"A": {"name": "1.store", "key": "tls.crt"}}
    assert refusal(service_account="steps@project.iam.gserviceaccount.com", secrets=secrets) is None
    labels = {"cloud.google.com/gke-nodepool": "GPU_Pool.1", "x" * 63: "", "Pool_A": "9"}
    assert refusal(step={"node_selector": labels, "cpu": ".5", "memory": "100"}) is None
    assert refusal(volumes={"a": "/мои данные", "b": "/мои данные/log"}) is None
    assert [pipeline_name(name) for name in ("Upper_Name.V2", "a..b", "2026", "x-")] == [
        *("upper-name-v2", "a-b", "2026", "x")
    ]
    for name, length in (("тест", 0), ("n" * 101, 101)):  # a sweep is called after its file
        with pytest.raises(InputError, match=f"makes a pipeline's name of {length} characters; give one of 1 to 100"):
            pipeline_name(name)


# What Prepare hands on -----------------------------------------------------------------------------------------------


@pytest.fixture
def resolved(tmp_path):
    assert call("generate", "--rows", 200, "--output", tmp_path / "log.tsv")[0] == 0

    def resolve_with(output="out", **changes):
        loaded = config(**changes)
        inputs, _ = resolve(loaded, [str(tmp_path / "log.tsv")], tmp_path / output, tmp_path / "out")
        return arguments(loaded, inputs)

    return tmp_path / "log.tsv", resolve_with


def test_an_extra_that_the_image_lacks_is_named_before_the_steps_start(resolved, monkeypatch):
    _, resolve_with = resolved
    monkeypatch.setattr(extras, "is_installed", lambda module: module != "jax")
    with pytest.raises(InputError, match="training.backend: jax needs the extra jax"):
        resolve_with(training={"backend": "jax"})


def test_a_cache_sees_what_a_step_computes_from_and_nothing_else(resolved):
    log, resolve_with = resolved

    def changed(**changes):
        after = resolve_with(**changes)
        return {name for name in before if before[name] != after[name]}

    before = resolve_with()
    assert changed() == set()
    assert changed(gates={"auc": {"min": 0.6}}) == {"GatedEvaluator"}
    assert changed(training={"epochs": 1}) == {"Trainer"}  # a baseline is trained to its optimum
    assert changed(kubeflow={**KUBEFLOW, "image": "other"}) == set()
    log.write_text(log.read_text() + log.read_text().splitlines()[0])
    assert {"LogExampleGen", "Trainer"} <= changed()


def test_a_run_in_another_folder_does_the_same_work_but_for_the_push(resolved, tmp_path):
    """Kubeflow's cache goes by the arguments. What the steps share lies where the configuration says."""
    _, resolve_with = resolved
    more = {"evaluation": {"baseline": {"name": "lr"}, "seeds": 2}}
    monitored = {"monitoring": {"previous": [str(tmp_path / "log.tsv")], "block": True}}
    here, elsewhere = (resolve_with(output, **more, **monitored) for output in ("out", "elsewhere"))
    assert {name for name in here if here[name] != elsewhere[name]} == {"AtomicPusher"}
    assert str(tmp_path / "elsewhere" / "models" / "ctr") in elsewhere["AtomicPusher"]
    version = tmp_path / "elsewhere" / "models" / "ctr" / "7" / "saved_model.pb"  # a model to beat is one of its folder
    version.parent.mkdir(parents=True)
    version.touch()
    elsewhere = resolve_with("elsewhere", **more, **monitored)
    assert {name for name in here if here[name] != elsewhere[name]} == {"LastBlessedModel", "AtomicPusher"}


def test_arguments_leave_defaults_out_and_read_as_the_same_settings(resolved):
    _, resolve_with = resolved
    found = resolve_with()
    spec = config().log_spec
    for node, settings in (("LogTransform", TransformSettings), ("LogExampleGen", ExampleGenSettings)):
        text = json.loads(found[node])["exec_properties"]["settings"]
        assert settings.model_validate_json(text).spec == spec
        assert '"header"' not in text and len(text) < len(spec.model_dump_json())
    shares = {"by": "time", "column": "I1", "validation": 0.1, "test": 0.1}  # by time, these must be given
    by_time = config(data={**CONFIG["data"], "split": shares}).log_spec
    text = short_json(by_time)
    assert type(by_time).model_validate_json(text) == by_time and '"header"' not in text


def test_arguments_for_beam_reach_every_step_that_beam_may_work_for(resolved, tmp_path):
    _, resolve_with = resolved
    monitored = {"previous": [str(tmp_path / "log.tsv")], "block": True}
    found = resolve_with(beam_args=["--runner=FlinkRunner", "--job_endpoint=jobs:8099"], monitoring=monitored)
    told = {name for name, text in found.items() if "--job_endpoint=jobs:8099" in text}
    assert told == {
        "LogExampleGen",
        "LogStatisticsGen",
        "DriftCheck",
        "LogTransform",
        "GatedEvaluator",
        "BulkInferrer",
    }
    shared = {name: json.loads(text).get("shared") for name, text in found.items()}
    assert {name for name, folder in shared.items() if folder == str(tmp_path / "out" / "tfx")} == told
    without = resolve_with(monitoring=monitored)
    assert set(without) == set(found) and not [text for text in without.values() if '"shared"' in text]


def test_prepare_takes_the_parameters_and_refuses_another_graph(resolved, tmp_path, monkeypatch):
    log, _ = resolved
    loaded = config()
    names = {key.replace(".", "_").lower() for key in [*(stage.name for stage in graph_nodes(loaded)), "Report"]}
    given = {
        "config": json.dumps(
            loaded.model_dump(mode="json", exclude={"kubeflow", "model", "training", "gates", "seed"})
        ),
        "place": str(tmp_path / "out"),
        "data": [str(log)],
        "output": str(tmp_path / "out"),
        "model": '{"name": "fm", "embedding_dim": 3}',
        "training": "{epochs: 7}",
        "gates": "{log_loss: {max: 0.6}}",
        "seed": 5,
        "settings": ["gates.auc.min=0.25"],
    }

    def prepared(**changes):
        task = Task(
            {
                "inputs": {"parameterValues": given | changes},
                "outputs": {"parameters": {name: {"outputFile": "/x"} for name in names}, "outputFile": "/x"},
            }
        )
        prepare(task)
        return {name: json.loads(text) for name, text in task.parameters.items()}

    found = prepared()
    told = json.loads(found["trainer"]["exec_properties"]["settings"])
    assert told["model"]["embedding_dim"] == 3 and told["seed"] == 5
    assert told["training"]["epochs"] == 7
    gates = found["report"]["config"]["gates"]
    assert gates["auc"]["min"] == 0.25 and gates["log_loss"]["max"] == 0.6
    assert found["bulkinferrer"]["beam_args"] and not found["trainer"]["beam_args"]
    for name in ("validation", "test"):
        (tmp_path / f"{name}.tsv").write_bytes(log.read_bytes())
    held = {name: [str(tmp_path / f"{name}.tsv")] for name in ("validation", "test")}
    by_files = prepared(settings=[f"data.split={json.dumps({'by': 'files', 'files': held})}"])
    told = json.loads(by_files["logexamplegen"]["exec_properties"]["settings"])
    assert told["files"] == [str(log), *held["validation"], *held["test"]]
    assert told["spec"]["data"]["split"]["files"] == {"train": [str(log)], **held}
    assert RunConfig.model_validate(by_files["report"]["config"]).data.split.files is not None
    with pytest.raises(InputError, match="would change the steps"):
        prepared(settings=["serving.bulk_inferrer=false"])
    with pytest.raises(InputError, match="the pipeline's parameters: training.epoch: unknown key"):
        prepared(training="{epoch: 7}")
    with pytest.raises(InputError, match="no such file"):
        prepared(data=["/data/absent"])
    # An argument of Linux has a limit, and a launcher's holds the text in JSON, with a backslash before each quote.
    monkeypatch.setattr(work, "MAX_ARGUMENTS", max(len(json.dumps(values)) for values in found.values()))
    with pytest.raises(InputError, match="the arguments of logexamplegen have"):
        prepared()


def test_an_artifact_is_where_the_launcher_keeps_it():
    assert str(local_path({"uri": "minio://mlpipeline/v2/artifacts/a/b"})) == "/minio/mlpipeline/v2/artifacts/a/b"
    assert str(local_path({"uri": "gs://bucket/a"})) == "/gcs/bucket/a"
    assert str(local_path({"uri": "s3://bucket/a"})) == "/s3/bucket/a"
