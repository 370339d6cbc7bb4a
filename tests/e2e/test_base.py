"""The base without a package of any extra: its commands from start to end, and the line of all others."""

import contextlib
import json
import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence

import pytest

from ctrpipe.common.extras import BASE, MODULES, install
from ctrpipe.common.extras import COMMANDS as COMMANDS_OF_EXTRAS
from ctrpipe.models.base.saved import save_model
from tests.contract.servers import free_port
from tests.e2e.small_run import ROOT
from tests.models.small_models import randomised
from tests.serving import packed_servable

# Refuses to import what the base does not have, in this process and in those that it starts.
REFUSES = """
import sys

class Refuses:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in HIDDEN:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Refuses())
"""
SHORT_BENCHMARK = """
{kinds: [rest_row], rows: [1], concurrency: [1], rounds: 1, seconds: 0.04, warm_up: 0, generators: 1, papers: false,
 open_loop: {rows: [1], loads: [0.3], seconds: 0.2}}
"""
COMMAND = "from ctrpipe.pipeline.cli import main; main(prog_name='ctrpipe')"
# One process imports TensorFlow once; what is not installed cannot be imported in any of them.
COMMANDS = """
import json, sys
from ctrpipe.pipeline.cli import main

sys.stderr = sys.stdout
for arguments in json.loads(sys.argv[1]):
    try:
        main(arguments, prog_name="ctrpipe")
    except SystemExit as ended:
        print(f"END {ended.code}", flush=True)
"""


@pytest.fixture(scope="module")
def model(shared_folder) -> pathlib.Path:
    """A folder of versions, of a model of few columns: an explanation looks at every pair of them."""
    return packed_servable.shared_version(shared_folder).parent


@pytest.fixture(scope="module")
def log(tmp_path_factory) -> pathlib.Path:
    path = tmp_path_factory.mktemp("log") / "log.tsv"
    packed_servable.write_log(packed_servable.rows(2000, 2), path)
    return path


@pytest.fixture(scope="module")
def without_extras(tmp_path_factory) -> dict[str, str]:
    """The environment variables of a process that sees the base alone."""
    folder = tmp_path_factory.mktemp("refuses")
    hidden = sorted(set().union(*MODULES.values()) - {"certifi"})  # which TensorFlow brings too
    (folder / "sitecustomize.py").write_text(f"HIDDEN = {hidden}\n{REFUSES}")
    return {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}


@pytest.fixture
def base(without_extras, tmp_path):
    def run(*arguments, code: int = 0, script: str = COMMAND) -> str:
        command = [sys.executable, "-c", script, *map(str, arguments)]
        done = subprocess.run(command, cwd=tmp_path, env=without_extras, capture_output=True, text=True, timeout=300)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout if not code else done.stderr

    return run


def test_the_hidden_packages_cannot_be_imported(base):
    for module in ("tfx", "jax"):
        assert f"No module named '{module}'" in base(code=1, script=f"import {module}")


@pytest.mark.parametrize("command", [name for name, extra in COMMANDS_OF_EXTRAS.items() if extra != BASE])
def test_a_command_of_an_extra_says_in_one_line_which_to_install(command, base):
    said = base(command, "x", code=2)
    assert re.fullmatch(rf"ctrpipe: `ctrpipe {command}` needs the extra \w+ \(tfx is not installed\); pip .*\n", said)


def run_all(base, commands: list[tuple], mistakes: Sequence[int] = ()) -> list[str]:
    """What commands say in one process without the extras, which imports TensorFlow once."""
    words = json.dumps([[str(word) for word in command] for command in commands])
    said = re.split(r"END (\w+)\n", base(words, script=COMMANDS))
    assert said[1::2] == ["2" if number in mistakes else "0" for number in range(len(commands))], said
    assert said[-1] == ""
    return said[:-1:2]


@contextlib.contextmanager
def served(environment: dict[str, str], model: pathlib.Path, folder: pathlib.Path) -> Iterator[tuple[int, int]]:
    """Serves a model as `ctr` from a folder until the block ends; the ports of REST and gRPC."""
    path = json.dumps(str(model.resolve()))
    (folder / "models.config").write_text(
        f'model_config_list {{ config {{ name: "ctr" base_path: {path} model_platform: "tensorflow" }} }}'
    )
    rest, grpc = free_port(), free_port()
    flags = ["--model_config_file=models.config", f"--rest_api_port={rest}", f"--port={grpc}"]
    server = subprocess.Popen(
        [sys.executable, "-c", COMMAND, "serve", *flags],
        **{"cwd": folder, "env": environment, "stderr": subprocess.PIPE, "text": True},
    )
    try:
        assert any("Serving " in line for line in server.stderr)
        yield rest, grpc
    finally:
        server.terminate()
        server.wait(30)


@pytest.mark.slow
def test_the_base_scores_explains_looks_at_a_log_serves_is_asked_and_moves_labels(
    base, without_extras, model, log, tmp_path
):
    of_files = [
        ("score", "--model", model, "--input", log, "--output", "scores"),
        ("score", "--model", model, "--input", log, "--output", "s", "--beam-arg=--runner=x"),
        ("explain", model, "--data", log, "--rows", 100, "--repeats", 1, "--pairs", 1, "--output", "why"),
        ("explain", model, "--row", f"{log}:1", "--data", log, "--rows", 50, "--orders", 2),
        ("models",),
        ("configs",),
        ("generate", "--rows", 300, "--output", "own.tsv"),
        ("init", "own.tsv", "--output", "own.yaml"),
        ("configs", "--output", "configs"),
        ("check", "configs/criteo/deepfm.yaml", "--data", "own.tsv"),
    ]
    with served(without_extras, model, tmp_path) as (rest, grpc):
        url = f"http://127.0.0.1:{rest}/v1/models/ctr"
        asked = ("--input", log, "--rows", 3, "--model", model)
        address = f"127.0.0.1:{grpc}"
        of_a_server = [
            ("predict", "--url", url, *asked),
            ("predict", "--grpc", address, *asked),
            ("canary", "ctr", "stable=1", "--model_config_file", "models.config", "--grpc", address),
        ]
        said = run_all(base, [*of_a_server, *of_files], mistakes=[len(of_a_server) + 1])
        assert "The models were not built, because this needs the extra pipeline" in " ".join(said[-1].split())
    over_rest, over_grpc, moved, *said = said
    assert over_rest == over_grpc and len(over_rest.splitlines()) == 3
    assert "stable\t1\tAVAILABLE" in moved
    scored, refused, explained, of_a_row, models, configs, _, _, _, checked = said
    assert "2,000 rows in, 2,000 scored" in scored
    assert f"Drift: not measured, because this needs tfx; {install('pipeline')}" in scored
    assert "ctrpipe: --beam-arg needs the extra pipeline" in refused
    assert "c1" in explained and "c1" in of_a_row
    assert set(json.loads((tmp_path / "why" / "explanation.json").read_text())) >= {"model", "pairs"}
    assert "dcn_v2" in models and "demo.yaml" in configs and "0 errors" in checked
    assert (tmp_path / "own.yaml").exists()


@pytest.mark.large(like="tests/serving/test_latency.py::test_every_cell_is_measured_and_whole")
def test_the_base_measures_latency(base, model, log, tmp_path):
    (tmp_path / "short.yaml").write_text(SHORT_BENCHMARK)
    base("bench", "latency", "--model", model, "--config", "short.yaml", "--output", "latency", "--data", log)
    assert (tmp_path / "latency" / "latency.html").read_text().count("<svg") == 2


@pytest.mark.large(like="tests/serving/test_tune.py::test_every_load_is_measured")
def test_the_base_measures_threads_and_batching(base, model):
    fast = ("--rows", 1, "--clients", 1, "--seconds", 0.05, "--rounds", 1, "--output", "tuned")
    assert "Best: " in base("tune-serving", model, *fast)


@pytest.mark.slow
def test_python_loads_a_model_and_its_keras_model_and_names_the_extras(base, model, tmp_path):
    script = """
import json, sys
import ctrpipe

model = ctrpipe.load(sys.argv[1])
print(float(model.predict(json.loads(sys.argv[2]))["ctr"][0]))
print(type(ctrpipe.load(sys.argv[3]).keras).__name__)
for work in (lambda: ctrpipe.run("x.yaml"), lambda: ctrpipe.tune("x.yaml")):
    try:
        work()
    except ctrpipe.InputError as error:
        print(error)
"""
    save_model(tmp_path / "kept", "dcn_v2", randomised("dcn_v2"))
    row = {"n1": [1.0], "n2": [2.0], "n3": [3.0], "c1": ["v1"], "c2": ["é1"], "c3": ["a"], "tags": ["t1|t2"]}
    row["hour"] = ["25110107"]
    probability, keras, run, tune = base(model, json.dumps(row), tmp_path / "kept", script=script).splitlines()
    assert 0 < float(probability) < 1 and keras == "DCNv2"
    assert run == f"ctrpipe.run needs the extra pipeline (tfx is not installed); {install('pipeline')}"
    assert tune == f"ctrpipe.tune needs the extra tune (tfx is not installed); {install('tune')}"
