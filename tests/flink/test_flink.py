"""A whole run, scoring and a lost task manager on a real Flink cluster of this machine: `make flink-test`."""

import collections
import functools
import os
import pathlib
import threading
import time

import pytest
import yaml

from common.errors import InputError
from common.processes import Workers
from tests.e2e.small_run import SHORT_CONFIG, call, one_line, start
from tests.flink.cluster import SLOTS, Cluster, missing
from tests.flink.results import results, scores

WHY_NOT = missing() if os.environ.get("CTRPIPE_FLINK_TEST") else "a cluster of four Java programs: `make flink-test`"
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(WHY_NOT), reason=str(WHY_NOT)), pytest.mark.timeout(900)]
ROWS = 3000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    cluster = Cluster(tmp_path_factory.mktemp("flink") / "cluster", task_managers=2)
    yield cluster
    cluster.stop()


def told(cluster: Cluster) -> list[str]:
    return [f"--beam-arg={argument}" for argument in cluster.beam_args(2 * SLOTS)]


@pytest.fixture(scope="module")
def log(tmp_path_factory) -> pathlib.Path:
    path = tmp_path_factory.mktemp("log") / "log.tsv"
    assert call("generate", "--rows", ROWS, "--seed", 5, "--output", path)[0] == 0
    return path


@pytest.fixture(scope="module")
def runs(cluster, log, tmp_path_factory) -> dict[str, pathlib.Path]:
    """The same run on this machine and on Flink."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "config.yaml").write_text(yaml.safe_dump(SHORT_CONFIG))
    for name, arguments in {"here": [], "flink": told(cluster)}.items():
        command = ("run", folder / "config.yaml", "--data", log, "--output", folder / name, *arguments)
        assert start(*command).wait(600) == 0
    return {name: folder / name for name in ("here", "flink")}


def test_a_run_makes_what_it_makes_on_this_machine(runs):
    made = results(runs["flink"])
    assert sum(count for count, _ in made["rows"].values()) == ROWS
    assert made["vocabularies"] and made == results(runs["here"])


def test_the_work_was_done_by_the_cluster(cluster, runs):
    states = [job["state"] for job in cluster.get("jobs/overview")["jobs"]]
    assert len(states) >= 4 and set(states) == {"FINISHED"}  # reading, statistics, counting, packing


def test_scores_are_those_of_this_machine(cluster, runs, log, tmp_path):
    for name, arguments in {"here": [], "flink": told(cluster)}.items():
        model = runs["here"] / "models" / "ctr"
        assert call("score", "--model", model, "--input", log, "--output", tmp_path / name, *arguments)[0] == 0
    here, flink = (scores(tmp_path / name) for name in ("here", "flink"))
    assert here.num_rows == ROWS and flink.equals(here)


def slow_square(number: int, folder: pathlib.Path) -> int:
    (folder / f"{number}-{time.time_ns()}").touch()
    time.sleep(3)
    return number * number


def test_a_lost_task_managers_work_is_done_by_another(cluster, tmp_path):
    """Twelve items of 3 s on four slots: one task manager goes in the first round, another comes 5 s later."""
    (tmp_path / "seen").mkdir()

    def lose_one() -> None:
        cluster.wait(lambda: any((tmp_path / "seen").iterdir()), 120)
        cluster.kill("task_manager_1")
        time.sleep(5)
        cluster.start_task_manager(2)

    losing = threading.Thread(target=lose_one)
    losing.start()
    work = functools.partial(slow_square, folder=tmp_path / "seen")
    workers = Workers(beam_args=tuple(cluster.beam_args(2 * SLOTS)), scratch=tmp_path)
    assert workers.map(work, range(12), seconds=0) == [number**2 for number in range(12)]
    losing.join()
    begun = collections.Counter(int(path.name.partition("-")[0]) for path in (tmp_path / "seen").iterdir())
    assert set(begun) == set(range(12)) and begun.total() > 12  # some began again, and each has one result


def refuse(number: int) -> int:
    raise InputError(f"part {number}: broken; write it again")


def test_a_mistake_in_a_part_ends_the_job_in_its_own_line(cluster, tmp_path):
    workers = Workers(beam_args=tuple(cluster.beam_args(1)), scratch=tmp_path)
    with pytest.raises(InputError, match="^part 0: broken; write it again$"):
        workers.map(refuse, range(1), seconds=0)


def test_a_cluster_that_is_gone_is_one_line(cluster, runs, log, tmp_path):
    """The last test: it ends the job manager, then the job server."""
    command = ("score", "--model", runs["here"] / "models" / "ctr", "--input", log, *told(cluster))
    cluster.kill("manager")
    one_line(*call(*command, "--output", tmp_path / "1"), "the job server does not reach its cluster: ")
    cluster.kill("jobs")
    one_line(
        *call(*command, "--output", tmp_path / "2"), f"--job_endpoint=localhost:{cluster.jobs}: no job server answers"
    )
