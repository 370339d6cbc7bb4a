"""The image's Dockerfile and the manifests: linted, checked against Kubernetes' schemas and against each other."""

import ast
import copy
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
from importlib import metadata

import click
import pytest
import yaml
from apache_beam.options.pipeline_options import FlinkRunnerOptions, PipelineOptions, PortableOptions

from ctrpipe.common.extras import BASE, extra_of
from ctrpipe.common.packages import PACKAGE, PARTS
from ctrpipe.pipeline.cli import main
from tests.kubeflow.manifests import FOLDER, by_kind, documents, invalid
from tests.serving.deploy_files import by_kind as serving_by_kind
from tests.serving.deploy_files import container as serving_container

ROOT = FOLDER.parent
DOCKERFILE = FOLDER / "Dockerfile"
CLI = "from ctrpipe.common import code_version\nfrom ctrpipe.pipeline import broken\n"
CUSTOM = ("FlinkDeployment",)  # not Kubernetes' own


def script(name):
    """A file of kubeflow/, which is not a package, as a module."""
    described = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(described)
    described.loader.exec_module(module)
    return module


image_locks, check_image = script("image_locks"), script("check_image")
FOLDERS = ["base", "flink", "schedule", "serving"]


def hadolint(file):
    command = [pathlib.Path(sys.executable).with_name("hadolint"), "--no-color", file]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


# The image -----------------------------------------------------------------------------------------------------------


def test_the_dockerfile_is_clean_to_its_linter(tmp_path):
    good = hadolint(DOCKERFILE)
    assert good.returncode == 0, good.stdout
    (tmp_path / "Dockerfile").write_text(DOCKERFILE.read_text().replace("--no-install-recommends ", ""))
    assert hadolint(tmp_path / "Dockerfile").returncode == 1


def test_the_image_has_the_code_the_lock_and_no_rights():
    text = DOCKERFILE.read_text()
    targets = re.split(r"^FROM .* AS (?=serving$|pipeline$)", text, flags=re.M)[1:]
    assert [target.partition("\n")[0] for target in targets] == ["serving", "pipeline"]
    assert all(re.search(r"^USER [1-9]\d*$", target, re.M) for target in targets)
    sources = copied()
    assert {source for source in sources if (ROOT / source / "__init__.py").exists()} == {PACKAGE, *PARTS}
    assert all((ROOT / source).exists() for source in sources)
    allowed = set(re.findall(r"^!(\S+)$", (FOLDER / "Dockerfile.dockerignore").read_text(), re.M))
    assert sources == allowed
    assert f"beam_python3.11_sdk:{metadata.version('apache-beam')}" in text
    # Steps are checked by importing everything when the image is built, as the user who will run them.
    assert all(target.index("USER 1000") < target.index("RUN python kubeflow/check_image.py") for target in targets)


def test_the_base_is_named_by_its_digest_and_only_images_whose_digest_is_not_known_are_not():
    assert re.search(r"^ARG BASE=python:3\.11-slim-trixie@sha256:[0-9a-f]{64}$", DOCKERFILE.read_text(), re.M)
    found = set()
    for file in [*(ROOT / "serving" / "deploy").rglob("*.yaml"), *FOLDER.rglob("*.yaml")]:
        found |= set(re.findall(r"^\s*image: (\S+)$", file.read_text(), re.M))
    own, tagged = {"registry.example/ctrpipe:1"}, {image for image in found if "@" not in image}
    assert {image.partition(":")[0] for image in tagged - own} <= {
        "tensorflow/serving",
        "flink",
        "apache/beam_flink1.20_job_server",
    }
    assert all(re.fullmatch(r"[\w./-]+:[\w.]+@sha256:[0-9a-f]{64}", image) for image in found - tagged)
    assert {image.partition(":")[0] for image in found - tagged} == {"prom/prometheus", "grafana/grafana"}


def copied() -> set[str]:
    """What the images have of the project, the locks included, which they install before."""
    lines = re.findall(r"^COPY (?!--)(.+) \S+$", DOCKERFILE.read_text(), re.M)
    return {source for line in lines for source in line.split()}


@pytest.mark.large(
    like="tests/kubeflow/test_image_and_manifests.py::test_the_image_has_the_code_the_lock_and_no_rights"
)
def test_what_the_image_copies_can_be_installed_and_imported_without_the_rest_of_the_project(tmp_path):
    for source in copied() - {"locks/3.11.lock"}:
        (tmp_path / source).parent.mkdir(exist_ok=True)
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, tmp_path / source, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / source, tmp_path / source)

    def run(*command):
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        return subprocess.run(
            [sys.executable, *command], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=500
        )

    [install] = set(re.findall(r"pip --python /opt/venv (install .+ -e \.)", DOCKERFILE.read_text()))
    installed = run("-m", "pip", *install.split(), "--dry-run")
    assert "Would install ctrpipe-" in installed.stdout, installed.stderr
    [check] = re.findall(r"^RUN python (\S+\.py) &&", DOCKERFILE.read_text(), re.M)
    checked = run(check)
    assert re.search(r"^\d{3} modules$", checked.stdout, re.M), checked.stderr


def test_the_commands_whose_modules_the_serving_image_imports_are_commands():
    named = re.findall(r"check_image\.py ([\w ]+?) &&", DOCKERFILE.read_text())
    assert len(named) == 2 and named[0] == named[1]
    names = {name.replace("_", "-") for name in named[0].split()}
    assert len(names) == 7 and names <= set(main.list_commands(click.Context(main)))


def test_the_images_install_their_locks_as_an_installation_here_does():
    dockerfile = DOCKERFILE.read_text().replace("\\\n", " ")
    images = re.findall(r"uv pip install (.+? -r /tmp/(?:pipeline|serving)\.lock)", dockerfile)
    flags = {"--no-deps", "--require-hashes"}
    assert len(images) == 2 and all(flags <= set(command.split()) for command in images)
    # What pip does without, in the images as here: an isolated build, and the packages that a venv comes with.
    for lock in (ROOT / "locks" / "3.11.lock", FOLDER / "pipeline.lock", FOLDER / "serving.lock"):
        assert {"setuptools", "setuptools-scm", "wheel"} <= set(image_locks.blocks(lock.read_text()))


def test_an_images_lock_is_the_part_of_the_lock_that_it_needs():
    lock = (ROOT / "locks" / "3.11.lock").read_text()
    assert (FOLDER / "pipeline.lock").read_text() == image_locks.image_lock("pipeline", lock)
    part, replaced, cpu = (FOLDER / "serving.lock").read_text().rpartition("tensorflow-cpu==")
    assert part == image_locks.image_lock("serving", lock) and replaced
    [version] = re.findall(r"^tensorflow==(\S+)", lock, re.M)
    assert cpu.split()[0] == version and "--hash=sha256:" in cpu
    # The product's part of the lock, and none of what only checks it.
    pipeline = set(image_locks.blocks((FOLDER / "pipeline.lock").read_text()))
    assert {"tfx", "kfp", "lightgbm", "optuna", "jax"} <= pipeline
    assert not {"pytest", "mypy", "ruff", "mkdocs", "kubernetes-validate", "tensorflow-recommenders"} & pipeline


def test_a_part_of_a_lock_has_what_its_packages_need_however_far_down():
    lock = "a==1 \\\n    --hash=sha256:1\n    # via c (pyproject.toml)\nb[x]==2\n    # via\n    #   a\n    #   z\n"
    blocks = image_locks.blocks(lock + "c==3\n    # via b\nd==4\n    # via c[fast]\ne==5\n    # via z\n")
    assert image_locks.closure(blocks, ("a",)) == ["a", "b", "c", "d"]
    assert image_locks.closure(blocks, ("a",), ("c.*",)) == ["a", "b"]
    assert "".join(blocks.values()).startswith(lock)


def test_an_image_asks_for_what_its_extras_do_and_for_the_extras_that_these_name():
    base, kubeflow = image_locks.asked_for(), image_locks.asked_for("kubeflow")
    assert {"tensorflow", "click", "uvicorn"} <= set(base) and not {"tfx", "kfp"} & set(base)
    assert {*base, "kfp", "certifi", "tfx", "apache-beam"} <= set(kubeflow) and "optuna" not in kubeflow
    assert "ctrpipe" not in kubeflow and len(set(kubeflow)) == len(kubeflow)


@pytest.mark.slow
def test_the_serving_image_has_every_package_that_its_commands_import():
    [commands] = set(re.findall(r"check_image\.py ((?:\w+ )+)&&", DOCKERFILE.read_text()))
    modules = check_image.modules_of(commands.split())
    assert {"ctrpipe.serving.server.rest", "ctrpipe.serving.scoring.score", "ctrpipe.serving.latency.benchmark"} <= set(
        modules
    )
    held = {*image_locks.blocks((FOLDER / "serving.lock").read_text()), "tensorflow"}
    asked = (*image_locks.asked_for("text"), "setuptools", "setuptools-scm", "wheel")
    needed = image_locks.closure(image_locks.blocks((ROOT / "locks" / "3.11.lock").read_text()), asked)
    assert held == {*needed, "tensorflow-cpu"} - {*image_locks.LEFT_OUT} and not {"tfx", "apache-beam"} & held
    owners = metadata.packages_distributions()  # several packages may have files in one folder, as in google/
    owned = {
        name: {re.sub("[-_.]+", "-", owner).lower() for owner in owners[name]}
        for name in imports(modules) & set(owners)
    }
    assert {"tensorflow", "uvicorn", "pyarrow", "scipy", "tensorflow_text"} <= set(owned)
    # What asks for an extra before it imports it, as tests/e2e/test_base.py tests.
    absent = {name for name, packages in owned.items() if not packages & held}
    assert all(extra_of(name) not in (BASE, "text") for name in absent), absent


def imports(modules: list[str]) -> set[str]:
    """The names of the other packages that modules of the project import, also inside functions."""
    found: set[str] = set()
    for module in modules:
        path = ROOT.joinpath(*module.split("."))
        file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.partition(".")[0])
    return found - {PACKAGE}


def test_the_check_of_the_image_imports_every_module_and_fails_where_one_is_missing(tmp_path):
    (tmp_path / "kubeflow").mkdir()
    (tmp_path / "kubeflow" / "check_image.py").write_text((FOLDER / "check_image.py").read_text())
    package = tmp_path / PACKAGE
    package.mkdir()
    (package / "__init__.py").touch()
    for part in PARTS:
        (package / part).mkdir()
        (package / part / "__init__.py").touch()
    common = (f"common/{name}.py" for name in ("code_version", "errors", "extras", "packages", "printable", "wheels"))
    for file in common:
        shutil.copy(ROOT / file, package / file)
    (package / "serving" / "whole.py").touch()

    def check(*commands):
        command = [sys.executable, "-S", tmp_path / "kubeflow" / "check_image.py", *commands]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    assert check().stdout == "13 modules\n"
    (package / "pipeline" / "broken.py").write_text("import a_package_that_is_not_there\n")
    assert check().returncode == 1 and "a_package_that_is_not_there" in check().stderr
    # What only needs an extra is passed over where a command is named, and nowhere else.
    (package / "pipeline" / "broken.py").write_text("import kfp_server_api\n")
    (package / "pipeline" / "cli.py").write_text(
        "from ctrpipe.common import code_version\nfrom ctrpipe.pipeline import broken\n"
    )
    (package / "pipeline" / "commands").mkdir()
    (package / "pipeline" / "commands" / "__init__.py").touch()
    (package / "pipeline" / "commands" / "serve.py").write_text("def serve():\n    from ctrpipe.serving import whole\n")
    assert check().returncode == 1 and "kfp_server_api" in check().stderr
    assert check("serve").stdout == "9 modules, 2 of an extra passed over\n"
    (package / "serving" / "whole.py").write_text("import a_package_that_is_not_there\n")
    assert check("serve").returncode == 1


# The manifests -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["base", "schedule"])
def test_the_manifests_are_valid_in_kubernetes(name):
    assert documents(name)
    for document in documents(name):
        assert not invalid(document)
        wrong = copy.deepcopy(document)
        wrong["metadata"]["labls"] = {}
        assert invalid(wrong)


def test_the_flink_session_runs_beams_workers_beside_its_task_managers():
    for kind in ("Deployment", "Service"):
        assert not invalid(by_kind("flink", kind))
    session = by_kind("flink", "FlinkDeployment")["spec"]
    pod = copy.deepcopy(session["taskManager"]["podTemplate"])
    main, workers = pod["spec"]["containers"]
    assert main["name"] == "flink-main-container"  # the operator's own name for it
    main["image"] = session["image"]
    assert not invalid(pod)
    version = session["image"].partition(":")[2]
    assert version in FlinkRunnerOptions.PUBLISHED_FLINK_VERSIONS
    assert session["flinkVersion"] == f"v{version}".replace(".", "_")
    jobs = by_kind("flink", "Deployment")["spec"]["template"]["spec"]["containers"][0]
    assert jobs["image"] == f"apache/beam_flink{version}_job_server:{metadata.version('apache-beam')}"
    service = by_kind("flink", "Service")
    ports = {port["name"]: port["containerPort"] for port in jobs["ports"]}
    assert {port["targetPort"]: port["port"] for port in service["spec"]["ports"]} == ports
    # The arguments that the manifest tells a user to write are Beam's, and lead here.
    told = re.search(r"beam_args: \[(.*?)\]", (FOLDER / "flink" / "jobs.yaml").read_text().replace("\n#", ""), re.S)
    options = PipelineOptions([argument.strip() for argument in told[1].split(",")])
    portable = options.view_as(PortableOptions)
    name = service["metadata"]["name"]
    assert portable.job_endpoint == f"{name}:{ports['jobs']}"
    assert portable.artifact_endpoint == f"{name}:{ports['artifacts']}"
    [pool] = workers["ports"]
    assert portable.environment_type == "EXTERNAL"
    assert portable.environment_config == f"localhost:{pool['containerPort']}"
    assert workers["args"] == ["--worker_pool"]


def test_everything_shares_one_image_one_account_and_one_volume():
    claim = by_kind("base", "PersistentVolumeClaim")["metadata"]["name"]
    session = by_kind("flink", "FlinkDeployment")["spec"]["taskManager"]["podTemplate"]["spec"]
    assert session["volumes"][0]["persistentVolumeClaim"]["claimName"] == claim
    job = by_kind("schedule", "CronJob")["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    account = by_kind("base", "ServiceAccount")["metadata"]["name"]
    binding = by_kind("base", "RoleBinding")
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": account}]
    assert binding["roleRef"]["name"] == by_kind("base", "Role")["metadata"]["name"]
    assert job["serviceAccountName"] == account and f"--service-account {account}" in job["containers"][0]["args"][0]
    assert job["containers"][0]["image"] == session["containers"][1]["image"]
    for pod in (job, session["containers"][1]):
        context = pod["securityContext"]
        assert context["runAsNonRoot"] and context["runAsUser"] == 1000


def test_tf_serving_follows_the_folder_into_which_the_pipeline_pushes():
    patch = by_kind("serving", "Deployment")
    assert patch["metadata"]["name"] == serving_by_kind("Deployment")["metadata"]["name"]
    [changed] = patch["spec"]["template"]["spec"]["containers"]
    assert changed["name"] == serving_container()["name"]
    [mount] = changed["volumeMounts"]
    [before] = [found for found in serving_container()["volumeMounts"] if found["mountPath"] == mount["mountPath"]]
    assert mount["name"] == before["name"] == "models" and mount["readOnly"]
    [volume] = patch["spec"]["template"]["spec"]["volumes"]
    claim = by_kind("base", "PersistentVolumeClaim")["metadata"]["name"]
    assert volume == {"name": "models", "persistentVolumeClaim": {"claimName": claim, "readOnly": True}}
    assert mount["subPath"] == "runs/demo/models"  # `runs/<name>` is the compiled pipeline's default
    deleted = by_kind("serving", "PersistentVolumeClaim")
    assert deleted["metadata"]["name"] == serving_by_kind("PersistentVolumeClaim")["metadata"]["name"]


@pytest.mark.parametrize("name", FOLDERS)
def test_kustomizations_name_files_that_are_there(name):
    folder = FOLDER / name
    found = yaml.safe_load((folder / "kustomization.yaml").read_text())
    named = [*found["resources"], *(patch["path"] for patch in found.get("patches", []))]
    assert all((folder / file).exists() for file in named) and found["namespace"] == "kubeflow"
    own = {file.name for file in folder.glob("*.yaml")} - {"kustomization.yaml"}
    assert own == {file for file in named if not file.startswith("..")}


@pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl is not installed")
@pytest.mark.parametrize("name", FOLDERS)
def test_kustomize_builds_what_kubernetes_takes(name):
    built = subprocess.run(["kubectl", "kustomize", FOLDER / name], capture_output=True, text=True, timeout=60)
    assert built.returncode == 0, built.stderr
    found = list(yaml.safe_load_all(built.stdout))
    assert not [document for document in found if document["kind"] not in CUSTOM and invalid(document)]
    if name == "serving":
        assert "PersistentVolumeClaim" not in {document["kind"] for document in found}
        [pod] = [document["spec"]["template"]["spec"] for document in found if document["kind"] == "Deployment"]
        claims = {v["name"]: v["persistentVolumeClaim"] for v in pod["volumes"] if "persistentVolumeClaim" in v}
        assert claims == {"models": {"claimName": "ctr-data", "readOnly": True}}
        assert {m["mountPath"] for m in pod["containers"][0]["volumeMounts"]} == {"/models", "/config", "/tmp"}
