"""A stand-in for Kubeflow Pipelines' API: stores the requests of kfp's client, and answers by the API's schema."""

import contextlib
import dataclasses
import email
import email.policy
import http.server
import json
import pathlib
import re
import ssl
import threading
import urllib.parse
from collections.abc import Iterator
from typing import Any


@dataclasses.dataclass
class Api:
    """`states` are a run's, one a question; `refuse` holds paths that are answered with a status of its own, `outages`
    those that first fail so many times with 503. `multi_user`: pipelines and experiments of a namespace are seen in it
    alone. `certificate`: a PEM file with certificate and key, for https. `manifest`: Argo's workflow of the run, which
    the older API answers, or several, one a question."""

    url: str = ""
    token: str | None = None
    states: list[tuple[str, list[dict[str, Any]]]] = dataclasses.field(default_factory=list)
    multi_user: bool = False
    certificate: pathlib.Path | None = None
    refuse: dict[str, int] = dataclasses.field(default_factory=dict)
    outages: dict[str, int] = dataclasses.field(default_factory=dict)
    logs: dict[str, str] = dataclasses.field(default_factory=dict)
    pipelines: dict[str, str] = dataclasses.field(default_factory=dict)  # id by name, or by namespace/name
    experiments: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)  # by name, or by namespace/name
    versions: dict[str, str] = dataclasses.field(default_factory=dict)  # display name by id
    descriptions: dict[str, str] = dataclasses.field(default_factory=dict)  # of versions, by id
    manifest: dict[str, Any] | list[dict[str, Any]] | None = None
    uploads: list[str] = dataclasses.field(default_factory=list)
    runs: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    history: list[str] = dataclasses.field(default_factory=lambda: ["PENDING"])  # the run's states until now
    scheduled: int = 0  # how many schedules were made
    schedules: list[dict[str, Any]] = dataclasses.field(default_factory=list)

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> tuple[int, Any]:
        """Returns the status, and JSON or text."""
        for refused, status in self.refuse.items():
            if re.fullmatch(refused, f"{method} {path}"):
                return status, {"error": f"{path} is refused"}
        for broken, times in self.outages.items():
            if times and re.fullmatch(broken, f"{method} {path}"):
                self.outages[broken] -= 1
                return 503, {"error": "the server restarts"}
        parts = path.strip("/").split("/")[2:]
        if path == "/apis/v1beta1/runs/r1" and self.manifest:
            several = self.manifest if isinstance(self.manifest, list) else [self.manifest]
            manifest = several.pop(0) if len(several) > 1 else several[0]
            return 200, {"pipeline_runtime": {"workflow_manifest": json.dumps(manifest)}}
        if "v1beta1" in path:
            return 404, {"error": "there is no older API"}
        match (method, *parts):
            case ("GET", "healthz"):
                return 200, {"multi_user": self.multi_user}
            case ("GET" | "POST", "experiments") if self.multi_user and not (body or query).get("namespace"):
                return 400, {"error": "in multi-user mode an experiment has a namespace"}
            case ("GET", "experiments"):
                found = self.experiments.get(self._asked(query))
                return 200, {"experiments": [found]} if found else {}
            case ("POST", "experiments"):
                made = {"experiment_id": f"e{len(self.experiments) + 1}", **body}
                self.experiments[self._place(body.get("namespace"), body["display_name"])] = made
                return 200, made
            case ("DELETE", "experiments", identity):
                kept = {name: e for name, e in self.experiments.items() if e["experiment_id"] != identity}
                self.experiments = kept
                return 200, {}
            case ("GET", "pipelines"):
                found = self.pipelines.get(self._asked(query))
                return 200, {"pipelines": [{"pipeline_id": found}]} if found else {}
            case ("POST", "pipelines", "upload"):
                place = self._place(query.get("namespace"), query["name"])
                if place in self.pipelines:
                    return 409, {"error": f"the pipeline {place} already exists"}
                self.uploads.append(body)
                self.pipelines[place] = "p1"
                self.versions["v1"] = query["name"]  # the first version is named and described as the pipeline
                self.descriptions["v1"] = query.get("description", "")
                return 200, {"pipeline_id": "p1", "display_name": query["name"]}
            case ("POST", "pipelines", "upload_version"):
                self.uploads.append(body)
                made = f"v{len(self.versions) + 1}"
                self.versions[made] = query["name"]
                self.descriptions[made] = query.get("description", "")
                return 200, {"pipeline_id": query["pipelineid"], "pipeline_version_id": made}
            case ("GET", "pipelines", "p1", "versions"):
                return 200, {
                    "pipeline_versions": [
                        {
                            "pipeline_version_id": key,
                            "display_name": name,
                            "description": self.descriptions.get(key, ""),
                        }
                        for key, name in self.versions.items()
                    ]
                }
            case ("DELETE", "pipelines", "p1", "versions", version):
                return 200, self.versions.pop(version) and {}
            case ("DELETE", "pipelines", "p1"):
                self.pipelines.clear()
                return 200, {}
            case ("POST", "runs"):
                self.runs.append(body)
                return 200, {"run_id": "r1"}
            case ("GET", "runs", "r1"):
                state, tasks = self.states.pop(0) if len(self.states) > 1 else self.states[0]
                self.history += [state] if state != self.history[-1] else []
                history = [{"state": past} for past in self.history]
                details = {"task_details": tasks}
                return 200, {"run_id": "r1", "state": state, "state_history": history, "run_details": details}
            case ("POST", "recurringruns"):
                self.scheduled += 1
                self.schedules.append({**body, "recurring_run_id": f"s{self.scheduled}"})
                return 200, self.schedules[-1]
            case ("GET", "recurringruns"):
                place = int(query.get("page_token") or 0)  # one a page, to see that all pages are asked for
                more = {"next_page_token": str(place + 1)} if place + 1 < len(self.schedules) else {}
                return 200, {"recurringRuns": self.schedules[place : place + 1], **more}
            case ("DELETE", "recurringruns", identity):
                self.schedules = [kept for kept in self.schedules if kept["recurring_run_id"] != identity]
                return 200, {}
            case ("GET", "runs", "r1", "nodes", pod, "log"):
                # The server has sent the status before it looks for the log.
                return 200, self.logs.get(pod) or json.dumps({"error_message": f"pods {pod} not found"})
        return 404, {"error": f"nothing at {method} {path}"}

    def _asked(self, query: dict[str, str]) -> str:
        """Returns the name in a filter; "" without a filter."""
        if "filter" not in query:
            return ""
        [asked] = json.loads(query["filter"])["predicates"]
        assert asked["operation"] in ("EQUALS", 1) and asked["key"] == "display_name"
        return self._place(query.get("namespace"), asked["stringValue"])

    def _place(self, namespace: str | None, name: str) -> str:
        return f"{namespace}/{name}" if self.multi_user and namespace else name


@contextlib.contextmanager
def running_api(**fields: Any) -> Iterator[Api]:
    api = Api(**fields)

    class Handler(http.server.BaseHTTPRequestHandler):
        def _handle(self) -> None:
            path, _, query = self.path.partition("?")
            content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if api.token and self.headers.get("Authorization") != f"Bearer {api.token}":
                status, answer = 401, {"error": "unauthenticated"}
            else:
                status, answer = api.answer(
                    self.command, path, dict(urllib.parse.parse_qsl(query)), self._body(content)
                )
            data = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/plain" if isinstance(answer, str) else "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def _body(self, content: bytes) -> Any:
            kind = self.headers.get("Content-Type", "")
            if kind.startswith("multipart/"):
                head = f"Content-Type: {kind}\r\n\r\n".encode()
                [part] = email.message_from_bytes(head + content, policy=email.policy.HTTP).iter_parts()
                assert part.get_param("name", header="content-disposition") == "uploadfile"
                return part.get_payload(decode=True).decode()
            return json.loads(content) if content else None

        do_GET = do_POST = do_DELETE = _handle

        def log_message(self, *arguments: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if api.certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(api.certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    api.url = f"{'https' if api.certificate else 'http'}://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield api
    finally:
        server.shutdown()
        server.server_close()
