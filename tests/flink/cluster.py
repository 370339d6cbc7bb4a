"""A standalone Flink cluster of this machine, with Beam's job server and worker pool: one process each.

`make flink` downloads what it needs into .flink; CTRPIPE_FLINK and CTRPIPE_FLINK_JOB_SERVER name other folders of jars.
"""

import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable

from common.processes import start_command, stop_command

ROOT = pathlib.Path(__file__).parents[2]
FLINK = pathlib.Path(os.environ.get("CTRPIPE_FLINK", ROOT / ".flink" / "lib"))
JOB_SERVER = pathlib.Path(os.environ.get("CTRPIPE_FLINK_JOB_SERVER", ROOT / ".flink" / "job-server"))
SLOTS = 2  # of each task manager, unless told otherwise
MANAGER = "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint"
TASK_MANAGER = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"
SERVER = "org.apache.beam.runners.flink.FlinkJobServerDriver"
# What Flink's own start scripts set: Java 17 keeps these packages closed otherwise.
OPENED = [
    f"--add-{kind}={package}=ALL-UNNAMED"
    for kind, package in [
        ("exports", "java.base/sun.net.util"),
        ("exports", "java.security.jgss/sun.security.krb5"),
        *(("opens", f"java.base/java.{name}") for name in ("lang", "net", "io", "nio", "lang.reflect", "text", "time")),
        *(("opens", f"java.base/java.util{name}") for name in ("", ".concurrent", ".concurrent.atomic")),
        ("opens", "java.base/sun.nio.ch"),
    ]
]
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


def missing() -> str | None:
    """Returns why no cluster can be started here, or None."""
    if shutil.which("java") is None:
        return "no java on the PATH: Flink needs Java 11 or 17"
    if not list(FLINK.glob("flink-dist-*.jar")):
        return f"no flink-dist-*.jar in {FLINK}: run `make flink`, or set CTRPIPE_FLINK"
    if not list(JOB_SERVER.glob("beam-runners-flink-*.jar")):
        return f"no beam-runners-flink-*.jar in {JOB_SERVER}: run `make flink`, or set CTRPIPE_FLINK_JOB_SERVER"
    return None


class Cluster:
    """A job manager, task managers, a job server and a worker pool, until `stop`.

    Args:
        folder: Where the processes log and keep what they need.
        task_managers: How many task managers start.
        slots: The slots of each, with a worker process each.
    """

    def __init__(self, folder: pathlib.Path, task_managers: int, slots: int = SLOTS):
        self.folder, self.slots_each = folder, slots
        self.processes: dict[str, subprocess.Popen] = {}
        self.rest, rpc, self.jobs, self.artifacts, expansion, self.pool = free_ports(6)
        settings = {
            **SETTINGS,
            "taskmanager.numberOfTaskSlots": slots,
            "taskmanager.cpu.cores": slots,
            "jobmanager.rpc.port": rpc,
            "rest.port": self.rest,
            "rest.address": "localhost",
            "parallelism.default": slots * task_managers,
            "io.tmp.dirs": str(folder / "tmp"),
        }
        (folder / "conf").mkdir(parents=True)
        (folder / "tmp").mkdir()
        (folder / "conf" / "config.yaml").write_text("".join(f"{key}: {value}\n" for key, value in settings.items()))
        (folder / "conf" / "log4j.properties").write_text(LOGGING)
        try:
            self._start_all(task_managers, expansion)
        except BaseException:
            self.stop()
            raise

    def _start_all(self, task_managers: int, expansion: int) -> None:
        self._java("manager", f"{FLINK}/*", 512, MANAGER, "--configDir", str(self.folder / "conf"))
        for number in range(task_managers):
            self.start_task_manager(number)
        master = ["--flink-master", f"localhost:{self.rest}", "--flink-conf-dir", str(self.folder / "conf")]
        ports = [
            "--job-port",
            str(self.jobs),
            "--artifact-port",
            str(self.artifacts),
            "--expansion-port",
            str(expansion),
        ]
        self._java(
            "jobs", f"{JOB_SERVER}/*", 512, SERVER, *master, *ports, "--artifacts-dir", str(self.folder / "staged")
        )
        self._start("pool", sys.executable, "-m", "tests.flink.worker_pool", str(self.pool))
        self.wait(lambda: self.slots() == self.slots_each * task_managers, 90)
        for port in (self.jobs, self.pool):
            self.wait(lambda port=port: answers(port), 60)

    def start_task_manager(self, number: int) -> None:
        told = [part for key in SETTINGS if "memory" in key for part in ("-D", f"{key}={SETTINGS[key]}")]
        conf = str(self.folder / "conf")
        self._java(f"task_manager_{number}", f"{FLINK}/*", 640, TASK_MANAGER, "--configDir", conf, *told)

    def kill(self, name: str) -> None:
        """Ends a process as a machine's loss does."""
        process = self.processes.pop(name)
        process.kill()
        process.wait()

    def slots(self) -> int:
        return self.get("overview").get("slots-total", 0)

    def get(self, path: str) -> dict:
        """Returns the job manager's answer to a question of its REST interface; {} while it starts."""
        try:
            with urllib.request.urlopen(f"http://localhost:{self.rest}/{path}", timeout=10) as answer:
                return json.load(answer)
        except OSError:
            return {}

    def beam_args(self, parallelism: int) -> list[str]:
        return [
            "--runner=FlinkRunner",
            f"--job_endpoint=localhost:{self.jobs}",
            f"--artifact_endpoint=localhost:{self.artifacts}",
            "--environment_type=EXTERNAL",
            f"--environment_config=localhost:{self.pool}",
            f"--sdk_worker_parallelism={self.slots_each}",
            f"--parallelism={parallelism}",
        ]

    def wait(self, ready: Callable[[], bool], seconds: float) -> None:
        end = time.monotonic() + seconds
        while not ready():
            for name, process in self.processes.items():
                assert process.poll() is None, f"{name} ended; its log:\n{self.log(name)[-3000:]}"
            assert time.monotonic() < end, f"not ready after {seconds} s; logs in {self.folder}"
            time.sleep(0.2)

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def stop(self) -> None:
        for process in reversed(self.processes.values()):
            stop_command(process, 15)

    def _java(self, name: str, class_path: str, heap_mb: int, *command: str) -> None:
        logging = f"-Dlog4j.configurationFile=file:{self.folder}/conf/log4j.properties"
        self._start(name, "java", f"-Xmx{heap_mb}m", *OPENED, logging, "-cp", class_path, *command)

    def _start(self, name: str, *command: str) -> None:
        # Beam's pool starts its workers with the first `python` of the PATH.
        path = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
        paths = {"PATH": path, "PYTHONPATH": str(ROOT), "FLINK_CONF_DIR": str(self.folder / "conf")}
        with open(self.folder / f"{name}.log", "ab") as log:
            self.processes[name] = start_command(
                command, stdout=log, stderr=subprocess.STDOUT, env={**os.environ, **paths}
            )


LOGGING = """\
rootLogger.level = INFO
rootLogger.appenderRef.console.ref = console
appender.console.name = console
appender.console.type = CONSOLE
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss,SSS} %-5p %c{1} %m%n
"""


def free_ports(number: int) -> list[int]:
    sockets = [socket.create_server(("localhost", 0)) for _ in range(number)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def answers(port: int) -> bool:
    try:
        socket.create_connection(("localhost", port), 1).close()
    except OSError:
        return False
    return True
