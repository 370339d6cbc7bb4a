"""A whole run, scoring and a lost worker on a real cluster of this machine: `make flink-test`, `make spark-test`."""

import collections
import functools
import os
import pathlib
import threading
import time

import numpy as np
import pytest
import yaml

from ctrpipe.common.errors import InputError
from ctrpipe.common.processes import Workers
from tests.clusters.cluster import Cluster
from tests.clusters.engines import CLUSTERS
from tests.clusters.results import results, scores
from tests.e2e.small_run import SHORT_CONFIG, call, one_line, start

ENGINE = os.environ.get("CTRPIPE_CLUSTER_TEST", "")
WHY_NOT = CLUSTERS[ENGINE].missing() if ENGINE else "four Java programs: `make flink-test`, `make spark-test`"
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(WHY_NOT), reason=str(WHY_NOT)), pytest.mark.timeout(900)]
ROWS = 3000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    cluster = CLUSTERS[ENGINE](tmp_path_factory.mktemp(ENGINE) / "cluster", workers=2, slots=2)
    yield cluster
    cluster.stop()


def told(cluster: Cluster) -> list[str]:
    return [f"--beam-arg={argument}" for argument in cluster.beam_args()]


@pytest.fixture(scope="module")
def log(tmp_path_factory) -> pathlib.Path:
    path = tmp_path_factory.mktemp("log") / "log.tsv"
    assert call("generate", "--rows", ROWS, "--seed", 5, "--output", path)[0] == 0
    return path


@pytest.fixture(scope="module")
def runs(cluster, log, tmp_path_factory) -> dict[str, pathlib.Path]:
    """The same run on this machine and on the cluster."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "config.yaml").write_text(yaml.safe_dump(SHORT_CONFIG))
    for name, arguments in {"here": [], "cluster": told(cluster)}.items():
        command = ("run", folder / "config.yaml", "--data", log, "--output", folder / name, *arguments)
        assert start(*command).wait(600) == 0
    return {name: folder / name for name in ("here", "cluster")}


def test_a_run_makes_what_it_makes_on_this_machine(runs):
    made = results(runs["cluster"])
    assert sum(count for count, _ in made["rows"].values()) == ROWS
    assert made["vocabularies"] and made == results(runs["here"])


def test_the_work_was_done_by_the_cluster(cluster, runs):
    states = cluster.ended_jobs()
    assert len(states) >= 4 and set(states) == {"FINISHED"}  # reading, statistics, counting, packing


def test_scores_are_those_of_this_machine(cluster, runs, log, tmp_path):
    for name, arguments in {"here": [], "cluster": told(cluster)}.items():
        model = runs["here"] / "models" / "ctr"
        assert call("score", "--model", model, "--input", log, "--output", tmp_path / name, *arguments)[0] == 0
    here, there = (scores(tmp_path / name) for name in ("here", "cluster"))
    # A test computes in one thread, and a worker in several: they round differently.
    np.testing.assert_allclose(there["ctr"].to_numpy(), here["ctr"].to_numpy(), rtol=1e-6)
    assert here.num_rows == ROWS and there.drop_columns("ctr").equals(here.drop_columns("ctr"))


def slow_square(number: int, folder: pathlib.Path, lost: pathlib.Path) -> int:
    """Works until the worker is lost, and 5 s: what it was at work on is not done."""
    (folder / f"{number}-{os.getpid()}-{time.time_ns()}").touch()
    end = time.monotonic() + 120
    while not lost.exists() and time.monotonic() < end:
        time.sleep(0.1)
    time.sleep(5)
    return number * number


def begun(folder: pathlib.Path) -> collections.Counter[int]:
    """The numbers that `slow_square` has begun with, and how often."""
    return collections.Counter(int(path.name.split("-")[0]) for path in folder.iterdir())


def test_a_lost_workers_work_is_done_by_another(cluster, tmp_path):
    """Twelve items of 5 s on four slots: one worker goes when both are at work, another comes 5 s later."""
    seen = tmp_path / "seen"
    seen.mkdir()

    def lose_one() -> None:
        cluster.wait(lambda: begun(seen).total() > cluster.slots_each, 120)
        cluster.kill("worker_1")
        (tmp_path / "lost").touch()
        time.sleep(5)
        cluster.start_worker(2)

    losing = threading.Thread(target=lose_one)
    losing.start()
    workers = Workers(beam_args=tuple(cluster.beam_args()), scratch=tmp_path)
    work = functools.partial(slow_square, folder=seen, lost=tmp_path / "lost")
    assert workers.map(work, range(12), seconds=0) == [number**2 for number in range(12)]
    losing.join()
    numbers = begun(seen)
    assert set(numbers) == set(range(12)) and numbers.total() > 12  # some began again, and each has one result


def refuse(number: int) -> int:
    raise InputError(f"part {number}: broken; write it again")


def test_a_mistake_in_a_part_ends_the_job_in_its_own_line(cluster, tmp_path):
    workers = Workers(beam_args=tuple(cluster.beam_args()), scratch=tmp_path)
    with pytest.raises(InputError, match="^part 0: broken; write it again$"):
        workers.map(refuse, range(1), seconds=0)


def test_a_cluster_that_is_gone_is_one_line(cluster, runs, log, tmp_path):
    """The last test: it ends the manager, then the job server."""
    command = ("score", "--model", runs["here"] / "models" / "ctr", "--input", log, *told(cluster))
    cluster.kill("manager")
    one_line(*call(*command, "--output", tmp_path / "1"), "the job server does not reach its cluster: ")
    cluster.kill("jobs")
    one_line(
        *call(*command, "--output", tmp_path / "2"), f"--job_endpoint=localhost:{cluster.jobs}: no job server answers"
    )
