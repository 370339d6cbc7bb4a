"""A standalone Spark cluster of this machine.

`make spark` downloads what it needs into .spark; CTRPIPE_SPARK and CTRPIPE_SPARK_JOB_SERVER name other folders of jars.
"""

import os
import pathlib
from typing import Any

from tests.clusters.cluster import ROOT, Cluster, answer_of, free_ports

SPARK = pathlib.Path(os.environ.get("CTRPIPE_SPARK", ROOT / ".spark" / "jars"))
JOB_SERVER = pathlib.Path(os.environ.get("CTRPIPE_SPARK_JOB_SERVER", ROOT / ".spark" / "job-server"))
MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"
SERVER = "org.apache.beam.runners.spark.SparkJobServerDriver"
EXECUTOR_MB = 640


class SparkCluster(Cluster):
    """A master and workers; see `Cluster`. The job server is the driver, with a Spark context for each job."""

    runner = "SparkRunner"
    needs = "Spark needs Java 8, 11 or 17"
    make = "make spark"
    jars = {
        "CTRPIPE_SPARK": (SPARK, "spark-core_*.jar"),
        "CTRPIPE_SPARK_JOB_SERVER": (JOB_SERVER, "beam-runners-spark-*.jar"),
    }

    def start_manager(self) -> None:
        self.rpc, self.master, self.driver = free_ports(3)
        address = ["--host", "localhost", "--port", str(self.rpc), "--webui-port", str(self.master)]
        self._spark("manager", 512, f"{SPARK}/*", MASTER, *address)
        self.wait(lambda: answer_of(self.master, "json/").get("status") == "ALIVE", 60)

    def start_worker(self, number: int) -> None:
        size = ["--cores", str(self.slots_each), "--memory", f"{2 * EXECUTOR_MB}m"]
        place = ["--host", "localhost", "--webui-port", "0", "--work-dir", str(self.folder / f"work_{number}")]
        self._spark(f"worker_{number}", 256, f"{SPARK}/*", WORKER, *size, *place, f"spark://localhost:{self.rpc}")

    def start_job_server(self) -> None:
        # Beam's jars come first, in driver and executors: Spark's folder has an older Guava than what they call.
        settings = {
            "spark.driver.host": "localhost",
            "spark.ui.port": self.driver,
            "spark.executor.memory": f"{EXECUTOR_MB}m",
            "spark.executor.extraClassPath": f"{JOB_SERVER}/*",
            "spark.default.parallelism": self.slots_each * self.workers,
            # All of the slots: a job that begins before gives all parts to the first worker.
            "spark.scheduler.minRegisteredResourcesRatio": 1.0,
            "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
        }
        told = [f"-D{key}={value}" for key, value in settings.items()]
        master = f"--spark-master-url=spark://localhost:{self.rpc}"
        self._spark("jobs", 512, f"{JOB_SERVER}/*:{SPARK}/*", *told, SERVER, master, *self.job_server_ports())

    def slots(self) -> int:
        workers = answer_of(self.master, "json/").get("workers", [])
        return sum(worker["cores"] for worker in workers if worker["state"] == "ALIVE")

    def ended_jobs(self) -> list[str]:
        return [job["state"] for job in answer_of(self.master, "json/").get("completedapps", [])]

    def is_working(self) -> bool:
        return any(task.get("duration", 0) > 3000 for task in self._tasks())

    def beam_args(self) -> list[str]:
        # The executors find Beam's jars in their folder; else each job would send 400 MB of jars to each of them.
        sent = next(JOB_SERVER.glob("beam-runners-spark-*.jar"))
        return [*super().beam_args(), f"--files_to_stage={sent}"]

    def _tasks(self) -> list[dict[str, Any]]:
        """Returns the tasks of the stages that run now."""
        found: list[dict[str, Any]] = []
        for job in answer_of(self.driver, "api/v1/applications"):
            stages = answer_of(self.driver, f"api/v1/applications/{job['id']}/stages?status=active&details=true")
            found += [task for stage in stages for task in stage.get("tasks", {}).values()]
        return found

    def _spark(self, name: str, heap_mb: int, class_path: str, *command: str) -> None:
        environment = {"SPARK_HOME": str(SPARK.parent), "SPARK_SCALA_VERSION": "2.12", "SPARK_LOCAL_IP": "127.0.0.1"}
        self.java(name, heap_mb, class_path, environment, *command)
