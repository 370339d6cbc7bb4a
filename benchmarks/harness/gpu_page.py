"""Renders the results of `python -m benchmarks.gpu` as a Markdown section of docs/measured.md."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.harness.gpu_parts import BARS, FULL, LARGE, SMALL, TRAIN, parts
from benchmarks.harness.printed_sections import markdown_table
from benchmarks.harness.settings import NUMBERT_TARGETS, SHALLOW_TARGET

Report = Mapping[str, Any]
COMMAND = "python -m benchmarks.gpu --minutes 25"
HEADING = f"## On a GPU: `{COMMAND}`"  # constant, because other pages link to it
NOTHING = f"""{HEADING}

Nothing has been measured on a GPU yet. The command has run on a CPU alone, with small sizes (`--device cpu --small`),
whose figures say nothing of a GPU.
"""
FORMATS = {"float32": "tf32", "mixed_bfloat16": "bfloat16", "mixed_float16": "bfloat16"}  # compared with this peak


def section(report: Report | None) -> str:
    """Returns the section of a report; without a report or parts, a note that nothing was measured."""
    if report is None or not report["parts"]:
        return NOTHING
    lines = [f"{HEADING}", "", *_machine(report), ""]
    reports = {name: result["report"] for name, result in report["parts"].items() if result.get("report")}
    peaks = reports.get("peak", {}).get("flops_per_s", {})
    judged = report["device"] == "gpu" and not report["small"]
    for title, rows in (
        ("TFLOP/s of large matrix products", _peak(peaks)),
        ("Training, samples/s, the median of the rounds", _training(_in_order(reports, report), peaks, judged)),
        ("ms of a prediction of the model as it is trained, from arrays to arrays, p50", _calls(reports.get("calls"))),
        ("ms of a call of the served DCN-v2, p50, and of the same graph under XLA", _inference(reports)),
        ("Epochs from disk and from memory, rows/s, the median of the rounds", _epochs(reports.get("reader"))),
        ("What low precision costs in test AUC", _precision(reports.get("precision"))),
        (
            "Largest difference of a logit from the CPU's, same seed and batches",
            _agreement(reports.get("agreement"), judged),
        ),
        ("Models with a text, ms a row of a prediction, the median of the repeats", _text(reports, judged)),
        ("ms of a training step, by rows of the embedding table", _tables(reports, judged)),
        ("Tables cut over the devices (JAX)", _sharded(reports.get("sharded_tables"))),
    ):
        if len(rows) > 1:
            lines += [f"{title}:", "", *markdown_table(rows), ""]
    return "\n".join([*lines, *_unmeasured(report)]).rstrip() + "\n"


def _machine(report: Report) -> list[str]:
    """Returns lines with the machine, the versions, and the load by other programs."""
    where = f"{report['machine']['cpu']}, {report['machine']['cores']} cores, Python {report['machine']['python']}"
    names = [f"{gpu['name']}, driver {gpu['driver'] or 'unknown'}" for gpu in report["gpus"]]
    versions = []
    for seen in report["backends"].values():
        known = seen.get("versions", {})
        cuda = f" (CUDA {seen['cuda']})" if seen.get("cuda") else ""
        versions += [f"{name} {version}{cuda if name == seen['backend'] else ''}" for name, version in known.items()]
    for name, seen in report["peers"].items():
        if "version" in seen:
            versions.append(f"{name} {seen['version']} (PyTorch {seen['torch']}, CUDA {seen['cuda']})")
    done = report["parts"].values()
    busy = max((result["busy"] for result in done if "busy" in result), default=0.0)
    gpu_busy = max((result.get("gpu_busy") or 0.0 for result in done), default=0.0)
    lines = [f"{report['date']}, {'; '.join([*names, where])}. {', '.join(dict.fromkeys(versions))}."]
    lines.append(f"Other work took up to {busy:.0%} of the cores and {gpu_busy:.0%} of the GPU before a part.")
    if report["device"] == "cpu" or report["small"]:
        sizes = " and small sizes" if report["small"] else ""
        lines.append(
            f"**A trial of the command on a {report['device'].upper()}{sizes}: the figures say nothing of a GPU.**"
        )
    return lines


def _in_order(reports: Mapping[str, Report], report: Report) -> list[Report]:
    """Returns the training reports in the order of the parts."""
    names = [part.name for part in parts(SMALL if report["small"] else FULL, report["device"])]
    return [reports[name] for name in names if name in reports and name.startswith((TRAIN, LARGE))]


def _peak(peaks: Mapping[str, Mapping[str, float]]) -> list[Sequence[str]]:
    rows: list[Sequence[str]] = [("", "float32", "TF32", "bfloat16")]
    return rows + [(name, *(f"{rate / 1e12:.3g}" for rate in rates.values())) for name, rates in peaks.items()]


def _training(reports: Iterable[Report], peaks: Mapping[str, Mapping[str, float]], judged: bool) -> list[Sequence[str]]:
    columns = ("model", "ours", "batch", "samples/s", "of the peak", "over FuxiCTR", "bar", "over RecBole")
    rows: list[Sequence[str]] = [columns]
    for report in reports:
        of_model: dict[tuple[str, str, str], list[Report]] = {}
        for one in report["models"]:
            named = _named(one, report["models"])
            of_model.setdefault((named, one["backend"], one["precision"]), []).append(one)
        for (named, backend, precision), pairs in of_model.items():
            rows.append(_row(named, backend, precision, report, pairs, peaks, judged))
    return rows


def _named(one: Report, others: Sequence[Report]) -> str:
    """Returns the model's name and the hyperparameters that differ between the comparisons with the peers."""
    settings = [other["hyperparameters"] for other in others if other["model"] == one["model"]]
    own = one["hyperparameters"]
    different = [key for key in own if any(theirs.get(key) != own[key] for theirs in settings)]
    return ", ".join([one["model"], *(f"{key} {own[key]}" for key in different)])


def _row(
    named: str,
    backend: str,
    precision: str,
    report: Report,
    pairs: Sequence[Report],
    peaks: Mapping[str, Mapping[str, float]],
    judged: bool,
) -> Sequence[str]:
    name = f"{backend} with XLA" if backend == "tensorflow" and report["xla"] else backend
    if precision != "float32":
        name += f", {precision.removeprefix('mixed_')}"
    batch = f"{report['shape']['batch']:,}"
    speeds = [speed for pair in pairs for speed in pair["ours"]]
    if not speeds:
        return named, name, batch, f"failed: {pairs[0]['reason']}", "", "", "", ""
    speed = statistics.median(speeds)
    peak, flops = peaks.get(backend, {}).get(FORMATS[precision]), pairs[0]["step_flops"]
    share = f"{speed * flops / report['shape']['batch'] / peak:.2%}" if peak and flops else ""
    fuxictr, recbole = (_ratio(pairs, peer) for peer in ("fuxictr", "recbole"))
    met = ""
    if judged and isinstance(fuxictr, float):
        bar = BARS[pairs[0]["model"]]
        met = f"at least {bar:g}: {'met' if fuxictr >= bar else 'missed'}"
    return named, name, batch, f"{speed:,.0f}", share, _said(fuxictr), met, _said(recbole)


def _ratio(pairs: Sequence[Report], peer: str) -> float | str | None:
    """Returns the median of the rounds' ratios, the reason if there is none, or None if the peer was not measured."""
    for pair in pairs:
        if pair["peer"] == peer:
            return pair["reason"] or float(pair["ratio"]["median"])
    return None


def _said(ratio: float | str | None) -> str:
    if ratio is None:
        return ""
    return f"failed: {ratio}" if isinstance(ratio, str) else f"{ratio:.2f}"


def _calls(report: Report | None) -> list[Sequence[str]]:
    if report is None:
        return []
    rows: list[Sequence[str]] = [("model", "ours", *(f"{count:,} rows" for count in report["rows"]))]
    return rows + [
        (one["model"], one["backend"], *(f"{each:.3g}" for each in one["p50_ms"])) for one in report["results"]
    ]


def _inference(reports: Mapping[str, Report]) -> list[Sequence[str]]:
    rows: list[Sequence[str]] = []
    for name in ("inference", "inference_on_cpu"):
        for way in reports.get(name, {}).get("results", []):
            where = reports[name]["device"].upper()
            if "error" in way:
                rows.append((where, f"failed: {way['error']}"))
                continue
            if not rows:
                rows.append(("rows", *(f"{one['rows']:,}" for one in way["rows"])))
            rows.append((where, *(f"{one['baseline_p50_ms']:.3g}" for one in way["rows"])))
            rows.append((f"{where}, XLA", *(f"{one['p50_ms']:.3g}" for one in way["rows"])))
    return rows


def _epochs(report: Report | None) -> list[Sequence[str]]:
    if report is None:
        return []
    rows: list[Sequence[str]] = [("read or trained", "rows/s", "range")]
    for one in [*report["readers"], *report["epochs"]]:
        speed = one["rows_per_s"]
        rows.append((one["name"], f"{speed['median']:,.0f}", f"{speed['min']:,.0f} to {speed['max']:,.0f}"))
    return rows


def _precision(report: Report | None) -> list[Sequence[str]]:
    rows: list[Sequence[str]] = [("model", "precision", "test AUC", "over float32", "95%")]
    for model, precisions in (report or {"models": {}})["models"].items():
        for precision, numbers in precisions.items():
            row = [model, precision, f"{statistics.mean(numbers['auc']):.5f}", "", ""]
            if "difference" in numbers:
                low, high = numbers["difference"]["interval"]
                row[3:] = [f"{numbers['difference']['difference']:+.5f}", f"{low:+.5f} .. {high:+.5f}"]
            rows.append(row)
    return rows


def _agreement(report: Report | None, judged: bool) -> list[Sequence[str]]:
    if report is None:
        return []
    rows: list[Sequence[str]] = [("model", "untrained", f"after {report['steps']} steps")]
    for one in report["results"]:
        if "reason" in one:
            rows.append((one["model"], f"failed: {one['reason']}", ""))
            continue
        met = "met" if one["logit_difference"] <= report["target"] else "missed"
        bar = f" (at most {report['target']:g}: {met})" if judged else ""
        rows.append((one["model"], f"{one['logit_difference']:.1e}{bar}", f"{one['trained_logit_difference']:.1e}"))
    return rows


def _text(reports: Mapping[str, Report], judged: bool) -> list[Sequence[str]]:
    rows: list[Sequence[str]] = []
    for case in reports.get("text_cost", {}).get("measured", []):
        if not rows:
            rows.append(("features", *case["models"], "BERT4CTR / Shallow-N", "NumBERT / BERT4CTR"))
        medians = (f"{numbers['median']:.3g}" for numbers in case["models"].values())
        shallow, numbert = case["bert4ctr over shallow_interaction_n"], case["numbert over bert4ctr"]
        wanted = NUMBERT_TARGETS.get(case["features"])
        beside_shallow = _beside(shallow, SHALLOW_TARGET if judged else None, at_most=True)
        rows.append((str(case["features"]), *medians, beside_shallow, _beside(numbert, wanted if judged else None)))
    return rows


def _tables(reports: Mapping[str, Report], judged: bool) -> list[Sequence[str]]:
    rows: list[Sequence[str]] = []
    for name in ("lazy_tables_tensorflow", "lazy_tables_jax"):
        report = reports.get(name)
        if report is None:
            continue
        if not rows:
            rows.append(("ours", "optimizer", "ids", *(f"{count:,} rows" for count in report["rows"]), "ratio"))
        for one in report["results"]:
            target = one["target"] if judged else None
            times = (f"{one[key]['median']:.3g}" for key in ("small_ms", "large_ms"))
            law = f"Zipf {one['zipf']}" if one["zipf"] else "uniform"
            ratio = _beside(one["ratio"]["median"], target, at_most=True)
            rows.append((report["backend"], one["optimizer"], law, *times, ratio))
    return rows


def _sharded(report: Report | None) -> list[Sequence[str]]:
    rows: list[Sequence[str]] = [("optimizer", "devices", "rows", "bytes a row", "MiB a device", "ms a step")]
    for one in (report or {"results": []})["results"]:
        sizes = f"{one['rows']:,}", f"{one['row_bytes']:.1f}", f"{one['device_bytes'] / 2**20:,.0f}"
        rows.append((one["optimizer"], str(one["devices"]), *sizes, f"{one['step_ms']['median']:.3g}"))
    return rows


def _beside(value: float, target: float | None, at_most: bool = False) -> str:
    """Returns a ratio with its bar."""
    if target is None:
        return f"{value:.2f}"
    met = value <= target if at_most else value >= target
    return f"{value:.2f} ({'at most' if at_most else 'at least'} {target:g}: {'met' if met else 'missed'})"


def _unmeasured(report: Report) -> list[str]:
    """Returns a line for each reason why parts have no result, and for each library that was left out."""
    by_reason: dict[str, list[str]] = {}
    for part in parts(SMALL if report["small"] else FULL, report["device"]):
        result = report["parts"].get(part.name, {"report": None, "reason": "not asked for yet"})
        if not result["report"]:
            by_reason.setdefault(result["reason"], []).append(f"`{part.name}`")
    lines = [f"- Not measured: {', '.join(names)}: {reason}" for reason, names in by_reason.items()]
    seen = {**report["backends"], **report["peers"]}
    return lines + [f"- {name} was left out: {entry['reason']}" for name, entry in seen.items() if "reason" in entry]
