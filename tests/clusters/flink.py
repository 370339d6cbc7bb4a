"""A standalone Flink cluster of this machine.

`make flink` downloads what it needs into .flink; CTRPIPE_FLINK and CTRPIPE_FLINK_JOB_SERVER name other folders of jars.
"""

import os
import pathlib

from tests.clusters.cluster import ROOT, Cluster, answer_of, free_ports

FLINK = pathlib.Path(os.environ.get("CTRPIPE_FLINK", ROOT / ".flink" / "lib"))
JOB_SERVER = pathlib.Path(os.environ.get("CTRPIPE_FLINK_JOB_SERVER", ROOT / ".flink" / "job-server"))
MANAGER = "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint"
TASK_MANAGER = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"
SERVER = "org.apache.beam.runners.flink.FlinkJobServerDriver"
SETTINGS = {
    "jobmanager.rpc.address": "localhost",
    "jobmanager.bind-host": "localhost",
    "taskmanager.host": "localhost",
    "taskmanager.memory.framework.heap.size": "128m",
    "taskmanager.memory.framework.off-heap.size": "128m",
    "taskmanager.memory.task.heap.size": "512m",
    "taskmanager.memory.task.off-heap.size": "64m",
    "taskmanager.memory.network.min": "64m",
    "taskmanager.memory.network.max": "64m",
    "taskmanager.memory.managed.size": "128m",
    "taskmanager.memory.jvm-metaspace.size": "256m",
    "taskmanager.memory.jvm-overhead.min": "192m",
    "taskmanager.memory.jvm-overhead.max": "192m",
    # A task manager that is killed is missed after 10 s, and its work starts again elsewhere.
    "heartbeat.interval": 2000,
    "heartbeat.timeout": 10000,
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": 10,
    "restart-strategy.fixed-delay.delay": "1 s",
}
LOGGING = """\
rootLogger.level = INFO
rootLogger.appenderRef.console.ref = console
appender.console.name = console
appender.console.type = CONSOLE
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss,SSS} %-5p %c{1} %m%n
"""


class FlinkCluster(Cluster):
    """A job manager and task managers; see `Cluster`."""

    runner = "FlinkRunner"
    needs = "Flink needs Java 11 or 17"
    make = "make flink"
    jars = {
        "CTRPIPE_FLINK": (FLINK, "flink-dist-*.jar"),
        "CTRPIPE_FLINK_JOB_SERVER": (JOB_SERVER, "beam-runners-flink-*.jar"),
    }

    def start_manager(self) -> None:
        self.rest, rpc = free_ports(2)
        settings = {
            **SETTINGS,
            "taskmanager.numberOfTaskSlots": self.slots_each,
            "taskmanager.cpu.cores": self.slots_each,
            "jobmanager.rpc.port": rpc,
            "rest.port": self.rest,
            "rest.address": "localhost",
            "parallelism.default": self.slots_each * self.workers,
            "io.tmp.dirs": str(self.folder / "tmp"),
        }
        self.conf = self.folder / "conf"
        self.conf.mkdir()
        (self.folder / "tmp").mkdir()
        (self.conf / "config.yaml").write_text("".join(f"{key}: {value}\n" for key, value in settings.items()))
        (self.conf / "log4j.properties").write_text(LOGGING)
        self._flink("manager", f"{FLINK}/*", 512, MANAGER, "--configDir", str(self.conf))

    def start_worker(self, number: int) -> None:
        told = [part for key in SETTINGS if "memory" in key for part in ("-D", f"{key}={SETTINGS[key]}")]
        self._flink(f"worker_{number}", f"{FLINK}/*", 640, TASK_MANAGER, "--configDir", str(self.conf), *told)

    def start_job_server(self) -> None:
        master = ["--flink-master", f"localhost:{self.rest}", "--flink-conf-dir", str(self.conf)]
        self._flink("jobs", f"{JOB_SERVER}/*", 512, SERVER, *master, *self.job_server_ports())

    def slots(self) -> int:
        return answer_of(self.rest, "overview").get("slots-total", 0)

    def ended_jobs(self) -> list[str]:
        return [job["state"] for job in self._jobs() if job["state"] != "RUNNING"]

    def is_working(self) -> bool:
        return any(job["state"] == "RUNNING" and job["duration"] > 3000 for job in self._jobs())

    def beam_args(self) -> list[str]:
        return [*super().beam_args(), f"--parallelism={self.slots_each * self.workers}"]

    def _jobs(self) -> list[dict]:
        return answer_of(self.rest, "jobs/overview").get("jobs", [])

    def _flink(self, name: str, class_path: str, heap_mb: int, *command: str) -> None:
        logging = f"-Dlog4j.configurationFile=file:{self.conf}/log4j.properties"
        self.java(name, heap_mb, class_path, {"FLINK_CONF_DIR": str(self.conf)}, logging, *command)
