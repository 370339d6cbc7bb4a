"""Both images do what they are for, as user 1000 with a read-only root and no capabilities."""

import json
import re
import time

import httpx
import pytest

from tests.image.containers import (
    PIPELINE,
    SERVING,
    address,
    engine,
    needs,
    options,
    run,
    started,
    wait_until,
    writable,
)

pytestmark = needs(PIPELINE, SERVING)

GRACE_SECONDS = 30  # Kubernetes' own
SERVING_GB = 1.4  # beside its base, of which there are larger and smaller ones
FIRST_OF_OURS = "org.opencontainers.image.title"  # in the Dockerfile, in its first instruction after FROM
LABELS = ("stable", "canary")  # the first one is given to a version


@pytest.fixture(scope="module")
def volume(tmp_path_factory):
    """What `ctrpipe demo` leaves in a volume, run in the pipeline's image."""
    folder = writable(tmp_path_factory.mktemp("volume"))
    ended = run(PIPELINE, "ctrpipe", "demo", "--output", "/data/demo", "--rows", 20_000, volumes={folder: "/data"})
    assert ended.code == 0, ended.text
    assert re.search(r"attention_net *│ 0\.\d{4}", ended.output) and "click probability 0." in ended.output
    assert "atplotlib" not in ended.text and "Traceback" not in ended.text
    return folder


def served(folder, image=SERVING, *flags):
    command = ["ctrpipe", "serve", "--model_base_path=/data/demo/models/ctr", "--model_name=ctr", "--host=0.0.0.0"]
    command += ["--port=8500", "--rest_api_port=8501", *flags]
    return started(image, *command, volumes={folder: "/data:ro"}, network="bridge", more=("--publish=127.0.0.1::8501",))


def is_available(url):
    answer = httpx.get(f"{url}/v1/models/ctr", trust_env=False)
    return answer.status_code == 200 and answer.json()["model_version_status"][0]["state"] == "AVAILABLE"


def test_the_demos_metrics_lie_in_the_volume_and_nothing_is_written_beside_it(volume, tmp_path):
    metrics = json.loads((volume / "demo" / "metrics.json").read_text())
    assert metrics["blessed"] and metrics["auc"] > 0.7
    assert (volume / "demo" / "report.html").stat().st_size > 10_000
    # A root that can be written shows what would have been.
    folder = writable(tmp_path)
    with started(
        PIPELINE, "ctrpipe", "generate", "--rows", 500, "--output", "/data/log.tsv", volumes={folder: "/data"}, root=""
    ) as name:
        assert engine("wait", name).output.strip() == "0"
        assert changed(name) == set()
    score = ["ctrpipe", "score", "--model", "/demo/models/ctr", "--input", "/data/log.tsv", "--output", "/data/scores"]
    volumes = {volume / "demo": "/demo:ro", folder: "/data"}
    with started(SERVING, *score, volumes=volumes, root="") as name:
        assert engine("wait", name).output.strip() == "0", engine("logs", name).text
        assert changed(name) == set()
    assert (folder / "scores" / "_summary.json").exists()


def changed(name):
    """The paths of a container's own that differ from its image; places that an engine mounts are not its own."""
    lines = engine("diff", name).output.splitlines()
    mounted = re.compile(r"/(etc|run|dev|proc|sys|tmp|data|demo)\b")
    return {line for line in lines if not mounted.match(line.split()[-1]) and line.split()[-1] != "/"}


def test_the_serving_image_serves_what_the_demo_has_pushed(volume):
    with served(volume) as name:
        url = f"http://{address(name, 8501)}"
        wait_until(lambda: is_available(url), name)
        [version] = [path.name for path in (volume / "demo" / "models" / "ctr").iterdir()]
        [state] = httpx.get(f"{url}/v1/models/ctr", trust_env=False).json()["model_version_status"]
        assert state["version"] == version and state["status"]["error_code"] == "OK"
        asked = ["--url", "http://127.0.0.1:8501/v1/models/ctr", "--input", "/data/demo/sample.tsv", "--rows", 5]
        inside = engine("exec", name, "ctrpipe", "predict", *asked)
        assert inside.code == 0 and len(re.findall(r"0\.\d+", inside.output)) >= 5, inside.text


def test_labels_are_answered_and_sigterm_ends_the_server_within_the_grace_time(volume, tmp_path):
    [version] = [path.name for path in (volume / "demo" / "models" / "ctr").iterdir()]
    (tmp_path / "models.config").write_text(
        'model_config_list { config { name: "ctr" base_path: "/data/demo/models/ctr" model_platform: "tensorflow" '
        f'version_labels {{ key: "stable" value: {version} }} }} }}'
    )
    command = [
        "ctrpipe",
        "serve",
        "--model_config_file=/config/models.config",
        "--host=0.0.0.0",
        "--rest_api_port=8501",
    ]
    command += ["--allow_version_labels_for_unavailable_models=true"]
    volumes = {volume: "/data:ro", writable(tmp_path): "/config:ro"}
    publish = ("--publish=127.0.0.1::8501",)
    with started(SERVING, *command, volumes=volumes, network="bridge", more=publish) as name:
        url = f"http://{address(name, 8501)}"
        wait_until(lambda: is_available(url), name)
        statuses = [httpx.get(f"{url}/v1/models/ctr/labels/{label}/metadata", trust_env=False) for label in LABELS]
        assert [answer.status_code for answer in statuses] == [200, 400], statuses[1].text
        assert statuses[0].json()["model_spec"]["version"] == version
        began = time.monotonic()
        assert engine("stop", f"--time={GRACE_SECONDS}", name).code == 0
        assert time.monotonic() - began < GRACE_SECONDS / 2
        state = json.loads(engine("inspect", name).output)[0]["State"]
        assert state["ExitCode"] == 0 and not state["OOMKilled"]
        # The same container, started again, serves what the volume still holds.
        assert engine("start", name).code == 0
        again = f"http://{address(name, 8501)}"
        wait_until(lambda: is_available(again), name)


def test_the_serving_image_scores_and_measures_latency(volume, tmp_path):
    folder = writable(tmp_path)
    volumes = {volume: "/data:ro", folder: "/out"}
    score = ["score", "--model", "/data/demo/models/ctr", "--input", "/data/demo/sample.tsv", "--output", "/out/scores"]
    ended = run(SERVING, "ctrpipe", *score, volumes=volumes)
    assert (
        ended.code == 0
        and "Drift: not measured, because this needs tfx" in ended.output
        and not ended.errors.count("import")
    ), ended.text
    summary = json.loads((folder / "scores" / "_summary.json").read_text())
    assert summary["rows"] == summary["scored"] == 20_000
    measured = ["--quick", "--model", "/data/demo/models/ctr", "--output", "/out/latency"]
    ended = run(SERVING, "ctrpipe", "bench", "latency", *measured, volumes=volumes)
    assert ended.code == 0, ended.text
    assert (folder / "latency" / "latency.json").exists()
    assert json.loads(ended.output.splitlines()[-1])["interrupted"] is False


def test_the_pipelines_image_submits_and_works_for_beam(volume):
    ended = run(PIPELINE, "ctrpipe", "submit", "--help")
    assert ended.code == 0 and "--start-timeout" in ended.output
    pool = ["python", "-m", "apache_beam.runners.worker.worker_pool_main", "--service_port=50123"]
    with started(PIPELINE, *pool, volumes={volume: "/data"}) as name:
        job = "import apache_beam as beam\n"
        job += "from apache_beam.testing.util import assert_that, equal_to\n"
        job += "options = beam.options.pipeline_options.PipelineOptions(['--runner=PortableRunner', "
        job += "'--job_endpoint=embed', '--environment_type=EXTERNAL', '--environment_config=localhost:50123'])\n"
        job += "with beam.Pipeline(options=options) as p:\n"
        job += "    assert_that(p | beam.Create([1, 2, 3]) | beam.Map(lambda x: x * 7), equal_to([7, 14, 21]))\n"
        job += "print('the workers answered')"
        ended = engine("exec", name, "python", "-c", job)
        assert ended.code == 0 and "the workers answered" in ended.output, ended.text


@pytest.mark.parametrize("image", [PIPELINE, SERVING])
def test_an_image_has_no_secrets_and_no_set_uid_program_that_a_user_without_rights_could_use(image):
    secrets = (
        "find / -xdev -type f ( -name id_rsa* -o -name *.key -o -name .netrc -o -name .pypirc -o -name pip.conf -o "
        "-name credentials* -o -name .git-credentials -o -name .env ) -not -path /proc/*"
    )
    found = run(image, *secrets.split()).output.split()
    assert [path for path in found if "/site-packages/" not in path and "/usr/share/" not in path] == []
    with_key = run(image, "grep", "-rlsE", "BEGIN (RSA |EC |OPENSSH )?PRIVATE KEY", "/app", "/home", "/root", "/etc")
    assert with_key.output == ""
    history = engine("history", "--no-trunc", "--format={{.CreatedBy}}", image).output
    assert not re.search(r"(?i)(token|password|secret)=|https?://[^ /]*@", history)
    set_uid = run(image, "find", "/", "-xdev", "-perm", "/6000", "-type", "f").output.split()
    assert all(path.startswith("/usr/") for path in set_uid)  # Debian's own, which no_new_privileges takes the bit from
    assert not [path for path in run(image, "find", "/opt", "/app", "-writable").output.split()]


def bytes_of_ours(image):
    """The size of the layers that the Dockerfile puts on its base."""
    newest_first = engine("history", "--no-trunc", "--format={{.Size}} {{.CreatedBy}}", image).output.splitlines()
    base = next(number for number, line in enumerate(newest_first) if FIRST_OF_OURS in line)
    units = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9}
    sizes = [re.match(r"([\d.]+) ?(\w+) ", line) for line in newest_first[:base]]
    return sum(float(size[1]) * units[size[2]] for size in sizes if size)


def test_the_serving_image_is_small_and_its_user_has_no_rights():
    described = json.loads(engine("inspect", SERVING).output)[0]
    assert 0.5e9 < bytes_of_ours(SERVING) <= min(SERVING_GB * 1e9, described["Size"])
    assert described["Config"]["User"] == "1000"
    ended = run(SERVING, "ctrpipe", "run", "--help")
    assert ended.code == 0
    assert "--read-only" in options()


def test_what_the_serving_image_lacks_is_one_line():
    ended = run(
        SERVING, "ctrpipe", "run", "/app/configs/criteo/lr.yaml", "--data", "/app/setup.py", "--output", "/tmp/o"
    )
    assert ended.code == 2 and "Traceback" not in ended.text, ended.text
