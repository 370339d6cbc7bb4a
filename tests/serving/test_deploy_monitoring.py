"""Prometheus's rules and Grafana's dashboard: their syntax, and that the server exports all they ask for."""

import concurrent.futures
import json
import math
import re
import shutil
import subprocess

import httpx
import promql_parser
import pydantic
import pytest
import yaml
from grafana_foundation_sdk.cog import encoder, plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from ctrpipe.serving.server import running_server
from tests.fuzz.servable import record_warmup, save
from tests.serving.deploy_files import FOLDER, container, flags, options
from tests.serving.promql import Recording, samples

MONITORING = FOLDER / "monitoring"
FROM_PROMETHEUS = {"job", "instance", "le"}


class _Strict(pydantic.BaseModel, extra="forbid", strict=True):
    pass


class _Rule(_Strict):
    alert: str
    expr: str
    for_: str = pydantic.Field("0s", alias="for", pattern=r"^\d+[smh]$")
    labels: dict[str, str]
    annotations: dict[str, str]


class _Group(_Strict):
    name: str
    rules: list[_Rule]


class _Rules(_Strict):
    groups: list[_Group]


class _Discovery(_Strict):
    role: str = pydantic.Field(pattern="^(pod|endpoints|service|node|ingress|endpointslice)$")


class _Relabel(_Strict):
    source_labels: list[str]
    separator: str = ";"
    regex: str = "(.*)"
    target_label: str | None = None
    action: str = pydantic.Field("replace", pattern="^(replace|keep|drop|labelmap)$")


class _Static(_Strict):
    targets: list[str]


class _Scrape(_Strict):
    job_name: str
    metrics_path: str = "/metrics"
    static_configs: list[_Static] = []
    kubernetes_sd_configs: list[_Discovery] = []
    relabel_configs: list[_Relabel] = []


class _Global(_Strict):
    scrape_interval: str


class _Prometheus(_Strict):
    global_: _Global = pydantic.Field(alias="global")
    rule_files: list[str]
    scrape_configs: list[_Scrape]


def rules():
    return _Rules.model_validate(yaml.safe_load((MONITORING / "rules.yaml").read_text())).groups[0].rules


def dashboard():
    return json.loads((MONITORING / "dashboard.json").read_text())


def expressions():
    """All of PromQL, Grafana's variables filled in."""
    targets = [target["expr"] for panel in dashboard()["panels"] for target in panel["targets"]]
    filled = [text.replace("$__rate_interval", "1m").replace("$model", "ctr") for text in targets]
    return filled + [rule.expr for rule in rules()]


def asked(node):
    """(metric, labels) of every selector; an aggregation's labels count for its operands."""
    if isinstance(node, promql_parser.VectorSelector):
        yield node.name, {matcher.name for matcher in node.matchers.matchers}
    elif isinstance(node, promql_parser.MatrixSelector):
        yield from asked(node.vector_selector)
    elif isinstance(node, promql_parser.AggregateExpr):
        labels = set(node.modifier.labels) if node.modifier else set()
        yield from ((metric, found | labels) for metric, found in asked(node.expr))
    elif isinstance(node, promql_parser.BinaryExpr):
        yield from asked(node.lhs)
        yield from asked(node.rhs)
    elif isinstance(node, promql_parser.Call):
        for argument in node.args:
            yield from asked(argument)


PAGE = "/monitoring/prometheus/metrics"
EXAMPLES = '{"examples": [{"x": 1.0}], "signature_name": "%s"}'
BODIES = {"predict": '{"instances": [1, 2]}', "regress": EXAMPLES % "regress", "classify": EXAMPLES % "classify"}
PROBES = [container()[f"{kind}Probe"]["httpGet"]["path"] for kind in ("readiness", "liveness")]


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Three pages of a server: after a few requests of each kind, and twice after 100 probes and 60 predictions."""
    models = tmp_path_factory.mktemp("models")
    record_warmup(save(models / "ctr" / "1"))
    with running_server(options(flags()["compose"], models)) as server:
        with httpx.Client(base_url=server.rest, trust_env=False) as client:

            def ask(method):
                return client.post(f"/v1/models/ctr:{method}", content=BODIES[method]).status_code

            client.post("/v1/models/ctr:predict", content="{}")
            pages = []
            for times in (1, 20, 20):
                with concurrent.futures.ThreadPoolExecutor(4) as pool:
                    assert set(pool.map(ask, [*BODIES] * times)) == {200}
                    assert {
                        answer.status_code for answer in pool.map(client.get, PROBES * (50 if times > 1 else 1))
                    } == {200}
                pages.append(client.get(PAGE).text)
    return pages


@pytest.fixture(scope="module")
def recording(pages):
    """The pages, half a minute apart."""
    recording = Recording()
    for number, page in enumerate(pages):
        recording.add(1000 + 30 * number, page)
    return recording


@pytest.fixture(scope="module")
def exported(pages):
    """{metric: label names} that the server exports under load."""
    found: dict[str, set[str]] = {}
    for name, labels in samples(pages[-1]):
        found.setdefault(name, set()).update(label for label, _ in labels)
    return found


@pytest.mark.slow
def test_no_panel_stays_empty(recording):
    panels = dashboard()["panels"]
    assert len(panels) > 3 and all(panel["targets"] for panel in panels)
    for panel in panels:
        for target in panel["targets"]:
            found = recording.query(target["expr"].replace("$__rate_interval", "2m").replace("$model", "ctr"), 1060)
            assert found and all(math.isfinite(value) for value in found.values()), (panel["title"], target["refId"])


def test_probes_are_no_predictions(recording):
    """120 predictions in two minutes, and as many requests of each other kind on the dashboard."""
    per_second = [target["expr"] for target in dashboard()["panels"][0]["targets"]]
    values = [
        sum(recording.query(text.replace("$__rate_interval", "2m").replace("$model", "ctr"), 1060).values())
        for text in per_second
    ]
    assert values == pytest.approx([120 / 120, 0, 200 / 120])


def alerts(recording, at):
    """The alerts whose expression holds, with the model or the folder that they are about."""
    return {
        (rule.alert, dict(labels).get("model_name") or dict(labels).get("model_path"))
        for rule in rules()
        if rule.alert not in ("CtrServingDown", "CtrServingSlow", "CtrServingQueues")
        for labels in recording.query(rule.expr, at)
    }


def test_nothing_alerts_where_all_is_well(recording):
    assert alerts(recording, 1060) == set()


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({"OK": 0, "INTERNAL": 0}, {"OK": 1000, "INTERNAL": 9}, set()),
        ({"OK": 0, "INTERNAL": 0}, {"OK": 1000, "INTERNAL": 11}, {("CtrServingErrors", "ctr")}),
        ({"INTERNAL": 0}, {"INTERNAL": 5}, {("CtrServingErrors", "ctr")}),  # since the start nothing was answered
        ({"OK": 0, "NOT_FOUND": 0}, {"OK": 1000, "NOT_FOUND": 60}, {("CtrServingBadRequests", "ctr")}),
        ({"OK": 0, "NOT_FOUND": 0}, {"OK": 1000, "NOT_FOUND": 40}, set()),
        ({"OK": 9, "NOT_FOUND": 0}, {"OK": 9, "NOT_FOUND": 5}, {("CtrServingBadRequests", "ctr")}),
    ],
)
def test_probes_do_not_dilute_the_alerts(before, after, expected):
    """Each page has 10,000 more probes than the previous one; the second has a model name invented by a client."""
    recording = Recording()
    for number, statuses in enumerate((before, after)):
        lines = [f'request_latency_count{{model_name="ctr",API="",entrypoint="REST"}} {10_000 * number}']
        for status, count in statuses.items():
            probes = 10_000 * number if status == "OK" else 0
            lines.append(f'request_count{{model_name="ctr",status="{status}"}} {count + probes}')
            if status == "OK":
                lines.append(f'request_latency_count{{model_name="ctr",API="Predict",entrypoint="GRPC"}} {count}')
        lines.append(f'request_count{{model_name="invented",status="NOT_FOUND"}} {number}')
        recording.add(1000 + 30 * number, "\n".join(f":tensorflow:serving:{line}" for line in lines))
    assert alerts(recording, 1030) == expected


def loads(**counts):
    return "\n".join(
        f':tensorflow:cc:saved_model:load_attempt_count{{model_path="/m/{status}",status="{status}"}} {count}'
        for status, count in counts.items()
    )


def test_a_version_that_does_not_load_alerts_for_a_quarter_of_an_hour():
    recording = Recording()
    pages = {
        0: loads(success=1),
        60: loads(success=1, fail=1),
        120: loads(success=2, fail=6),
        1080: loads(success=2, fail=6),
    }
    for second, page in pages.items():
        recording.add(second, page)
    assert alerts(recording, 0) == set()
    assert alerts(recording, 60) == {("CtrServingLoadFailed", "/m/fail")}
    assert alerts(recording, 120) == {("CtrServingLoadFailed", "/m/fail"), ("CtrServingLoadFailed", "/m/success")}
    assert alerts(recording, 1080) == set()


def test_every_metric_and_label_is_one_that_the_server_exports(exported):
    selectors = [selector for text in expressions() for selector in asked(promql_parser.parse(text))]
    assert len(selectors) >= len(expressions())
    for metric, labels in selectors:
        if metric != "up":
            assert metric in exported, metric
            assert labels - FROM_PROMETHEUS <= exported[metric], metric


def test_the_dashboards_variable_is_a_label_of_a_metric(exported):
    query = next(one["query"] for one in dashboard()["templating"]["list"] if one["type"] == "query")
    metric, label = re.fullmatch(r"label_values\((\S+), (\w+)\)", query).groups()
    assert label in exported[metric]


def test_every_alert_says_what_it_is_about():
    assert len(rules()) > 3
    for rule in rules():
        labels = set().union(*(labels for _, labels in asked(promql_parser.parse(rule.expr))))
        used = set(re.findall(r"\$labels\.(\w+)", rule.annotations["summary"]))
        assert used and used <= labels | {"instance", "model_path"}
        assert rule.labels["severity"] in ("warning", "critical")


@pytest.mark.parametrize("name", ["prometheus.yaml", "kubernetes.yaml"])
def test_prometheus_reads_the_page_and_the_rules(name):
    config = _Prometheus.model_validate(yaml.safe_load((MONITORING / name).read_text()))
    assert all((MONITORING / file).is_file() for file in config.rule_files)
    (job,) = config.scrape_configs
    assert f'job="{job.job_name}"' in next(rule.expr for rule in rules() if rule.alert == "CtrServingDown")
    page = "/monitoring/prometheus/metrics"
    relabelled = [one for one in job.relabel_configs if one.target_label == "__metrics_path__"]
    assert job.metrics_path == page or relabelled


@pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is not installed")
def test_promtool_finds_no_mistake():
    for command in (["check", "rules", "rules.yaml"], ["check", "config", "prometheus.yaml"]):
        done = subprocess.run(["promtool", *command], cwd=MONITORING, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr


def test_the_dashboard_is_what_grafana_reads():
    plugins.register_default_plugins()
    ours = dashboard()
    read = json.loads(encoder.JSONEncoder(sort_keys=True).encode(Dashboard.from_json(ours)))
    assert list(lost(ours, read)) == []
    ours["panels"][0]["targets"][0]["expresion"] = ours["panels"][0]["targets"][0].pop("expr")
    read = json.loads(encoder.JSONEncoder(sort_keys=True).encode(Dashboard.from_json(ours)))
    assert len(list(lost(ours, read))) == 1


def test_the_panels_lie_beside_each_other():
    cells = [
        (x, y)
        for panel in dashboard()["panels"]
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells)) and max(x for x, _ in cells) < 24


def lost(ours, read, path=""):
    """The places where a round trip through Grafana's types changes the dashboard; added defaults do not count."""
    if isinstance(ours, dict) and isinstance(read, dict):
        for key, value in ours.items():
            yield from lost(value, read.get(key), f"{path}/{key}")
    elif isinstance(ours, list) and isinstance(read, list) and len(ours) == len(read):
        for index, (one, other) in enumerate(zip(ours, read, strict=True)):
            yield from lost(one, other, f"{path}/{index}")
    elif ours != read:
        yield path
