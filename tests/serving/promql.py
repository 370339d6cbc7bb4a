"""Evaluates the PromQL of the dashboard and the rules on recorded pages, as Prometheus does."""

import collections
import math
import operator
import re

import promql_parser

STALE_SECONDS = 300  # a sample is the current one for so long
_SAMPLE = re.compile(r"([:\w]+)(?:\{(.*)\})? (\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ARITHMETIC = {
    "+": operator.add,
    "*": operator.mul,
    "/": lambda a, b: a / b if b else (math.nan if not a else math.inf),
}
_MATCHES = {
    "MatchOp.Equal": lambda value, wanted: value == wanted,
    "MatchOp.NotEqual": lambda value, wanted: value != wanted,
    "MatchOp.Re": lambda value, wanted: bool(re.fullmatch(wanted, value)),
    "MatchOp.NotRe": lambda value, wanted: not re.fullmatch(wanted, value),
}
# Labels without the name -> value; a number is the one value without labels.
Vector = dict[frozenset[tuple[str, str]], float]


def samples(page: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """The samples of a page by name and labels."""
    found = {}
    for line in page.splitlines():
        if not line.startswith("#"):
            name, labels, value = _SAMPLE.fullmatch(line).groups()
            found[name, frozenset(_LABEL.findall(labels or ""))] = float(value)
    return found


class Recording:
    """Pages of a server, each scraped at a second."""

    def __init__(self):
        self._pages = []

    def add(self, second: float, page: str) -> None:
        self._pages.append((second, samples(page)))

    def query(self, text: str, at: float) -> Vector:
        return self._evaluate(promql_parser.parse(text), at)

    def _evaluate(self, node, at: float) -> Vector:
        match node:
            case promql_parser.NumberLiteral():
                return {frozenset(): node.val}
            case promql_parser.ParenExpr():
                return self._evaluate(node.expr, at)
            case promql_parser.VectorSelector():
                return {labels: values[-1][1] for labels, values in self._select(node, at, STALE_SECONDS).items()}
            case promql_parser.AggregateExpr():
                return self._sum(node, at)
            case promql_parser.Call():
                return self._call(node, at)
            case promql_parser.BinaryExpr():
                return self._binary(node, at)
        raise NotImplementedError(type(node))

    def _select(self, selector, at: float, seconds: float):
        """The samples of the last seconds by labels, oldest first."""
        at -= selector.offset.total_seconds() if selector.offset else 0
        found = collections.defaultdict(list)
        for second, page in self._pages:
            if not at - seconds < second <= at:
                continue
            for (name, labels), value in page.items():
                given = dict(labels)
                wanted = selector.matchers.matchers
                if name == selector.name and all(_MATCHES[str(m.op)](given.get(m.name, ""), m.value) for m in wanted):
                    found[labels].append((second, value))
        return found

    def _sum(self, node, at: float) -> Vector:
        assert str(node.op) == "sum"
        kept = set(node.modifier.labels) if node.modifier else set()
        found = collections.defaultdict(float)
        for labels, value in self._evaluate(node.expr, at).items():
            found[frozenset(pair for pair in labels if pair[0] in kept)] += value
        return dict(found)

    def _call(self, node, at: float) -> Vector:
        if node.func.name == "histogram_quantile":
            return _quantiles(node.args[0].val, self._evaluate(node.args[1], at))
        matrix = node.args[0]
        seconds = matrix.range.total_seconds()
        grown = {
            labels: values[-1][1] - values[0][1]
            for labels, values in self._select(matrix.vector_selector, at, seconds).items()
            if len(values) > 1
        }
        divisor = {"rate": seconds, "increase": 1}[node.func.name]
        return {labels: value / divisor for labels, value in grown.items()}

    def _binary(self, node, at: float) -> Vector:
        left, right, operation = self._evaluate(node.lhs, at), self._evaluate(node.rhs, at), str(node.op)
        if operation == "or":
            return left | {labels: value for labels, value in right.items() if labels not in left}
        if operation == "unless":
            return {labels: value for labels, value in left.items() if labels not in right}
        if isinstance(node.rhs, promql_parser.NumberLiteral):
            right = dict.fromkeys(left, node.rhs.val)
        if isinstance(node.lhs, promql_parser.NumberLiteral):
            left = dict.fromkeys(right, node.lhs.val)
        both = [labels for labels in left if labels in right]
        if operation in _ARITHMETIC:
            return {labels: _ARITHMETIC[operation](left[labels], right[labels]) for labels in both}
        holds = {">": operator.gt, "==": operator.eq}[operation]
        return {labels: left[labels] for labels in both if holds(left[labels], right[labels])}


def _quantiles(share: float, buckets: Vector) -> Vector:
    """The upper bound of the bucket with this share below it: Prometheus interpolates inside that bucket."""
    histograms = collections.defaultdict(list)
    for labels, count in buckets.items():
        rest = frozenset(pair for pair in labels if pair[0] != "le")
        histograms[rest].append((float(dict(labels)["le"]), count))
    found = {}
    for labels, cumulative in histograms.items():
        cumulative.sort()
        total = cumulative[-1][1]
        found[labels] = next(le for le, count in cumulative if count >= share * total) if total else math.nan
    return found
