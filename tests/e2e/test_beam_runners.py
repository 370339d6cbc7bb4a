"""Work on the parts of a log is the same on any Beam runner.

Dask's and Beam's own job server run it in other processes. Flink's and Spark's runners hand it to a job server by the
same interface as here, where Beam's own stands in for theirs, which are Java programs.
"""

import copy
import dataclasses
import functools
import itertools
import multiprocessing
import multiprocessing.connection
import os
import pathlib
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
import yaml
from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.portability.local_job_service import LocalJobServicer
from apache_beam.runners.worker.worker_pool_main import BeamFnExternalWorkerPoolServicer

from benchmarks.harness.preprocess_logs import bad_log
from ctrpipe.common.errors import InputError
from ctrpipe.common.processes import Workers
from ctrpipe.pipeline.evaluation.predictions import predict
from ctrpipe.pipeline.monitoring.statistics import generate_statistics
from ctrpipe.serving.scoring.score import score
from ctrpipe.transforms.features.analyzers import LogSummary, merge, summarize
from ctrpipe.transforms.features.transform import analyze, transform
from ctrpipe.transforms.log.ingest import ingest
from ctrpipe.transforms.log.payload import PayloadWriter, payload_files, payload_schema, read_payload
from ctrpipe.transforms.log.spec import LogSpec
from ctrpipe.transforms.log.split import SPLITS
from tests.e2e.small_run import CONFIG, call
from tests.serving import small_servable

pytestmark = pytest.mark.slow

SPEC = LogSpec.model_validate({key: CONFIG[key] for key in ("data", "features")})
IMAGE = "example/ctrpipe:1"
IN_CONTAINERS = ("--environment_type=DOCKER", f"--environment_config={IMAGE}")
CLUSTERS = ("FlinkRunner", "SparkRunner")
MORE_PORTABLE = [pytest.param(name, marks=pytest.mark.large) for name in CLUSTERS]
# A job server starts a process for each job, which imports the product: one shows what it brings back.
MOSTLY_DASK = pytest.mark.parametrize(
    "workers", ["dask", pytest.param("PortableRunner", marks=pytest.mark.large), *MORE_PORTABLE], indirect=True
)


class JobServer(LocalJobServicer):
    """Keeps the graphs of the jobs that it is sent, and runs them in a process at an address instead of containers."""

    def __init__(self, address: str):
        super().__init__()
        self.graphs = []
        self._pool = beam_runner_api_pb2.ExternalPayload(endpoint={"url": address}).SerializeToString()

    def create_beam_job(self, preparation_id, job_name, pipeline, options):
        self.graphs.append(copy.deepcopy(pipeline))
        for environment in pipeline.components.environments.values():
            environment.urn = common_urns.environments.EXTERNAL.urn
            environment.payload = self._pool
        return super().create_beam_job(preparation_id, job_name, pipeline, options)


def serve_workers(told: multiprocessing.connection.Connection) -> None:
    address, server = BeamFnExternalWorkerPoolServicer.start()
    told.send(address)
    server.wait_for_termination()


@pytest.fixture(scope="module")
def job_server():
    """With Beam's pool of workers in a process, which has imported the product before the first job."""
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve_workers, args=[there])
    process.start()
    server = JobServer(here.recv())
    server.port = server.start_grpc_server()
    yield server
    server.stop()
    process.kill()
    process.join()


@pytest.fixture(scope="module")
def dask():
    """Arguments for two processes of a Dask cluster, a part of the work at a time."""
    import distributed

    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None) as found:
        yield (
            "--runner=apache_beam.runners.dask.dask_runner.DaskRunner",
            f"--dask_client_address={found.scheduler_address}",
            "--dask_partition_size=1",
        )
        for client in list(distributed.Client._instances):  # Beam leaves them open
            client.close()


@pytest.fixture(params=("dask", "PortableRunner", *MORE_PORTABLE))
def workers(request, tmp_path) -> Workers:
    if request.param == "dask":
        return Workers(beam_args=request.getfixturevalue("dask"), scratch=tmp_path)
    port = request.getfixturevalue("job_server").port
    return Workers(
        beam_args=(f"--runner={request.param}", f"--job_endpoint=localhost:{port}", *IN_CONTAINERS), scratch=tmp_path
    )


def process_and_square(number: int) -> tuple[int, int]:
    return os.getpid(), number * number


def refuse(number: int, bad: int) -> int:
    if number == bad:
        raise InputError(f"part {number}: broken; write it again")
    return number


def test_results_come_from_other_processes_in_the_order_of_the_items(workers, job_server):
    """The job that is sent has only operations that Flink's and Spark's runners know, and ours their container."""
    before = len(job_server.graphs)
    results = workers.map(process_and_square, range(6), seconds=0)
    assert [square for _, square in results] == [0, 1, 4, 9, 16, 25]
    assert os.getpid() not in {process for process, _ in results}
    sent = job_server.graphs[before:]
    assert len(sent) == any(argument.startswith("--job_endpoint") for argument in workers.beam_args)
    for graph in sent:
        assert_complete(graph)


def test_dask_works_in_both_processes(dask):
    processes = {process for process, _ in Workers(beam_args=dask).map(process_and_square, range(40), seconds=0)}
    assert len(processes) == 2


@MOSTLY_DASK
def test_a_mistake_in_one_part_is_raised_as_it_was(workers):
    with pytest.raises(InputError, match="^part 3: broken; write it again$"):
        workers.map(functools.partial(refuse, bad=3), range(5), seconds=0)


def assert_complete(graph: beam_runner_api_pb2.Pipeline) -> None:
    components = graph.components
    (environment,) = components.environments.values()
    assert environment.urn == common_urns.environments.DOCKER.urn
    assert beam_runner_api_pb2.DockerPayload.FromString(environment.payload).container_image == IMAGE
    operations = [transform for transform in components.transforms.values() if not transform.subtransforms]
    ours = [operation for operation in operations if operation.spec.urn == common_urns.primitives.PAR_DO.urn]
    known = [common_urns.primitives.IMPULSE.urn, common_urns.primitives.GROUP_BY_KEY.urn]
    assert {operation.spec.urn for operation in operations} <= {common_urns.primitives.PAR_DO.urn, *known}
    assert any(operation.unique_name == "Work" for operation in ours)
    assert {operation.environment_id for operation in ours} <= set(components.environments)


@pytest.fixture(scope="module")
def parts(tmp_path_factory) -> list[pathlib.Path]:
    """Parts of a payload with few, many and missing values."""
    folder, random = tmp_path_factory.mktemp("payload"), np.random.default_rng(1)
    schema = payload_schema(SPEC)
    for number in range(4):
        with PayloadWriter(folder, f"{number}", schema) as writer:
            writer.write(random_rows(schema, 500, random))
    return payload_files(folder)


def random_rows(schema: pa.Schema, rows: int, random: np.random.Generator) -> pa.RecordBatch:
    columns = []
    for index, field in enumerate(schema):
        values = random.integers(0, 3 + 10 * index, rows)
        present = random.random(rows) > 0.1
        as_text = [str(value).encode() for value in values]
        columns.append(pa.array(as_text if pa.types.is_binary(field.type) else values, field.type, mask=~present))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


@MOSTLY_DASK
def test_the_summary_of_a_log_is_that_of_one_process(workers, parts):
    one = summarize(parts, SPEC)
    many = merge(workers.map(functools.partial(summarize, spec=SPEC), [[part] for part in parts], seconds=0))
    for column in SPEC.vocabulary_columns:
        assert counts(many, column) == counts(one, column)
        assert many.vocabulary(column, top_k=50).equals(one.vocabulary(column, top_k=50))
    assert many.numbers["I5"].count == one.numbers["I5"].count
    assert many.numbers["I5"].variance == pytest.approx(one.numbers["I5"].variance)


def counts(summary: LogSummary, column: str) -> dict[bytes, int]:
    found = summary.values[column]
    return dict(zip(found.values.to_pylist(), found.counts.tolist(), strict=True))


@pytest.fixture(scope="module")
def log(tmp_path_factory) -> list[str]:
    """Files of one log, with malformed rows."""
    folder = tmp_path_factory.mktemp("log")
    lines = bad_log(folder, 2000, 0.005).read_bytes().splitlines(keepends=True)
    files = [folder / f"{number}.tsv" for number in range(4)]
    for number, file in enumerate(files):
        file.write_bytes(b"".join(lines[number * 500 : (number + 1) * 500]))
    return [str(file) for file in files]


def read_log(log: list[str], folder: pathlib.Path, workers: Workers) -> tuple:
    """What reading a log gives: counts, the rows of each split, dead letters."""
    splits = {name: folder / name for name in SPLITS}
    for split in splits.values():
        split.mkdir(parents=True)
    counts = ingest(SPEC, log, 0, splits, folder, workers)
    rows = {name: list(read_payload(payload_files(split))) for name, split in splits.items()}
    return counts, rows, (folder / "rejects.jsonl").read_text()


@MOSTLY_DASK
def test_the_payload_of_a_log_is_that_of_one_process(workers, log, tmp_path):
    one = read_log(log, tmp_path / "one", Workers(processes=1))
    assert one[0].rejected > 0 and sum(map(len, one[1].values())) > 0
    assert read_log(log, tmp_path / "many", workers) == one


# The other stages ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def payload(log, tmp_path_factory) -> pathlib.Path:
    """The checked log, in several parts of each kind of rows that training reads."""
    folder = tmp_path_factory.mktemp("checked")
    read_log(log, folder, Workers(processes=1))
    assert len(payload_files(folder / "train")) > 1
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> pathlib.Path:
    return small_servable.save(tmp_path_factory.mktemp("models") / "3", small_servable.spec())


def whole_transform(payload: pathlib.Path, model: pathlib.Path, folder: pathlib.Path, workers: Workers) -> object:
    """Rows counted, the graph written, the rows of every split packed."""
    analyze(SPEC, payload_files(payload / "train"), folder / "graph", workers)
    transform(SPEC, folder / "graph", {name: (payload / name, folder / name) for name in SPLITS}, 7, workers)
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.glob("*/packed-*")}


def statistics(payload: pathlib.Path, model: pathlib.Path, folder: pathlib.Path, workers: Workers) -> object:
    found = generate_statistics({name: payload_files(payload / name) for name in SPLITS}, 1000, 0, workers)
    return {name: sampled.statistics.SerializeToString(deterministic=True) for name, sampled in found.items()}


def predictions(payload: pathlib.Path, model: pathlib.Path, folder: pathlib.Path, workers: Workers) -> object:
    files = predict({"candidate": model}, payload_files(payload / "train"), [], folder, workers)
    return [pa.parquet.read_table(file).to_pydict() for file in files]


@dataclasses.dataclass
class Scores:
    """Scored rows, equal to others up to rounding: a test's process computes in one thread, a worker in several."""

    rows: dict[str, list]
    ctr: np.ndarray

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Scores) and self.rows == other.rows and np.allclose(self.ctr, other.ctr, 1e-6, 0)


def scores(payload: pathlib.Path, model: pathlib.Path, folder: pathlib.Path, workers: Workers) -> object:
    logs = [folder / f"{number}.tsv" for number in range(3)]
    for number, path in enumerate(logs):
        path.write_text("".join(f"0\t{number + line}\t{'x' * line}\n" for line in range(20)))
    score(model, [str(path) for path in logs], folder / "scores", workers.beam_args)
    found = [pa.parquet.read_table(path).drop_columns("file") for path in sorted(folder.glob("scores/part-*"))]
    table = pa.concat_tables(found)
    return Scores(table.drop_columns("ctr").to_pydict(), table["ctr"].to_numpy())


Stage = Callable[[pathlib.Path, pathlib.Path, pathlib.Path, Workers], object]
STAGES: tuple[Stage, ...] = (whole_transform, statistics, predictions, scores)


@pytest.fixture(scope="module")
def alone(payload, model, tmp_path_factory) -> Callable[[Stage], object]:
    """What a stage makes in one process."""

    @functools.cache
    def made(stage: Stage) -> object:
        return stage(payload, model, tmp_path_factory.mktemp("alone"), Workers(processes=1))

    return made


# Each of Dask's processes imports what a stage needs: those that import most are in `make test-all`.
@pytest.mark.parametrize(
    "stage", [stage if stage is whole_transform else pytest.param(stage, marks=pytest.mark.large) for stage in STAGES]
)
def test_two_processes_of_dask_make_what_one_process_makes(stage, dask, payload, model, alone, tmp_path):
    workers = Workers(beam_args=dask, scratch=tmp_path)
    assert alone(stage)
    assert stage(payload, model, tmp_path, workers) == alone(stage)


# The runner decides nothing about a job but its address, see above: each stage goes to one of them. What a stage makes
# of its parts in other processes is what Dask has shown.
JOBS = [
    pytest.param(stage, runner, marks=[] if stage is whole_transform else [pytest.mark.large])
    for stage, runner in zip(STAGES, itertools.cycle(CLUSTERS), strict=False)
]


@pytest.mark.large(
    like="tests/e2e/test_beam_runners.py::test_results_come_from_other_processes_in_the_order_of_the_items"
)
@pytest.mark.parametrize(("stage", "runner"), JOBS)
def test_a_cluster_gets_the_job_of_each_stage(stage, runner, job_server, payload, model, alone, tmp_path):
    arguments = (f"--runner={runner}", f"--job_endpoint=localhost:{job_server.port}", *IN_CONTAINERS)
    before = len(job_server.graphs)
    assert stage(payload, model, tmp_path, Workers(beam_args=arguments, scratch=tmp_path)) == alone(stage)
    assert len(job_server.graphs) > before
    for graph in job_server.graphs[before:]:
        assert_complete(graph)


@pytest.mark.large(
    like="tests/e2e/test_beam_runners.py::test_results_come_from_other_processes_in_the_order_of_the_items"
)
def test_the_command_line_hands_arguments_for_beam_on(monkeypatch, tmp_path):
    configurations = []

    def run(config, *others):
        configurations.append(config)
        return {"blessed": True, "drift_breached": None}

    monkeypatch.setattr("ctrpipe.pipeline.run.run.run", run)
    monkeypatch.setattr("ctrpipe.pipeline.report.summary.print_summary", lambda *arguments: None)
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({**CONFIG, "beam_args": ["--runner=Other"]}))
    arguments = ["--runner=FlinkRunner", "--job_endpoint=jobs:8099"]
    told = [f"--beam-arg={argument}" for argument in arguments]
    assert call("run", tmp_path / "config.yaml", "--data", "log.tsv", "--output", tmp_path / "out", *told)[0] == 0
    [config] = configurations
    assert config.beam_args == arguments and config.workers_for(tmp_path).beam_args == tuple(arguments)
