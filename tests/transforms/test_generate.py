import gzip
import itertools
import pathlib

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.preprocessing import OneHotEncoder

from ctrpipe.common.errors import InputError
from ctrpipe.transforms.generate import FORMATS, ClickModel, GenerateResult, generate, generator
from ctrpipe.transforms.generate.blocks import BLOCK_ROWS
from ctrpipe.transforms.generate.click_model import balanced_signs
from ctrpipe.transforms.generate.columns import code_shares
from ctrpipe.transforms.generate.sample import sample

ROWS = 40_000
CRITEO_NAMES = ["label", *(f"I{i}" for i in range(1, 14)), *(f"C{i}" for i in range(1, 27))]
LOW_CARDINALITY = ["C6", "C9", "C14", "C17", "C20", "C22", "C23", "C25"]


def read_criteo(path: pathlib.Path) -> pd.DataFrame:
    return pd.read_csv(path, sep="\t", header=None, names=CRITEO_NAMES, dtype=str, keep_default_na=False)


def read_truth(result: GenerateResult) -> pd.DataFrame:
    return pd.read_parquet(result.truth_path)


def log_bucket(column: pd.Series) -> pd.Series:
    """Natural-log buckets as a string, from the definition."""
    numbers = pd.to_numeric(column)
    buckets = np.where(numbers > 0, np.floor(np.log(numbers.clip(lower=1))), np.where(numbers < 0, -2, -1))
    return pd.Series(np.where(numbers.isna(), "missing", buckets.astype(str)), index=column.index)


def pair_statistic(left: pd.Series, right: pd.Series, labels: np.ndarray) -> float:
    """Chi-square of the label over the cells of two columns, per degree of freedom: about 1 without any signal."""
    frame = pd.DataFrame({"cell": left + "|" + right, "label": labels})
    cells = frame.groupby("cell")["label"].agg(["sum", "count"])
    cells = cells[cells["count"] >= 50]
    rate = cells["sum"].sum() / cells["count"].sum()
    chi_square = ((cells["sum"] - rate * cells["count"]) ** 2 / (rate * (1 - rate) * cells["count"])).sum()
    return float(chi_square / (len(cells) - 1))


@pytest.fixture(scope="module")
def criteo(tmp_path_factory: pytest.TempPathFactory) -> GenerateResult:
    return generate("criteo", ROWS, 3, tmp_path_factory.mktemp("criteo") / "log.tsv")


@pytest.fixture(scope="module")
def criteo_rows(criteo: GenerateResult) -> pd.DataFrame:
    return read_criteo(criteo.path)


@pytest.fixture(scope="module")
def avazu(tmp_path_factory: pytest.TempPathFactory) -> GenerateResult:
    return generate("avazu", ROWS, 3, tmp_path_factory.mktemp("avazu") / "log.csv")


@pytest.fixture(scope="module")
def avazu_rows(avazu: GenerateResult) -> pd.DataFrame:
    return pd.read_csv(avazu.path, dtype=str, keep_default_na=False)


@pytest.mark.slow
@pytest.mark.parametrize("log_format", ["criteo", "avazu"])
def test_same_seed_gives_same_bytes(tmp_path: pathlib.Path, log_format: str) -> None:
    first, again, other = (
        generate(log_format, 500, seed, tmp_path / name) for seed, name in ((5, "a"), (5, "b"), (6, "c"))
    )
    assert first.path.read_bytes() == again.path.read_bytes()
    assert first.truth_path.read_bytes() == again.truth_path.read_bytes()
    assert first.path.read_bytes() != other.path.read_bytes()


@pytest.mark.parametrize("log_format", ["criteo", "avazu"])
@pytest.mark.parametrize("rows", [1, 1000, BLOCK_ROWS, BLOCK_ROWS + 1])
def test_a_shorter_log_is_the_start_of_a_longer_one(
    request: pytest.FixtureRequest, tmp_path: pathlib.Path, log_format: str, rows: int
) -> None:
    longer: GenerateResult = request.getfixturevalue(log_format)
    shorter = generate(log_format, rows, 3, tmp_path / "log")
    head = shorter.path.read_bytes()
    assert longer.path.read_bytes()[: len(head)] == head
    assert head.count(b"\n") == rows + (log_format == "avazu")
    pd.testing.assert_frame_equal(read_truth(shorter), read_truth(longer)[:rows])


@pytest.mark.slow
def test_criteo_layout(criteo: GenerateResult, criteo_rows: pd.DataFrame) -> None:
    lines = criteo.path.read_text().splitlines()
    assert len(lines) == ROWS
    assert {line.count("\t") for line in lines} == {39}
    assert set(criteo_rows["label"]) == {"0", "1"}
    for name in CRITEO_NAMES[1:14]:
        assert criteo_rows[name].str.fullmatch(r"-?\d+|").all(), name
    for name in CRITEO_NAMES[14:]:
        assert criteo_rows[name].str.fullmatch(r"[0-9a-f]{8}|").all(), name
    integers = criteo_rows[CRITEO_NAMES[1:14]].apply(pd.to_numeric)
    assert [name for name in integers if integers[name].min() < 0] == ["I2"]


def test_criteo_missing_rates(criteo_rows: pd.DataFrame) -> None:
    missing = (criteo_rows == "").mean()
    # Rates of the public log; 0.01 is four standard errors at 40,000 rows.
    expected = {"I1": 0.447, "I2": 0.0, "I3": 0.193, "I12": 0.773, "C1": 0.0, "C3": 0.039, "C6": 0.14, "C22": 0.819}
    for name, rate in expected.items():
        assert missing[name] == pytest.approx(rate, abs=0.01), name
    assert ((criteo_rows["C20"] == "") == (criteo_rows["C25"] == "")).all()


def test_criteo_heavy_tails(criteo_rows: pd.DataFrame) -> None:
    sizes = criteo_rows[CRITEO_NAMES[14:]].nunique()
    assert sizes["C9"] == 3
    assert sizes["C20"] == 4  # and the empty string
    assert sizes["C3"] > 10_000
    counts = criteo_rows["C3"][criteo_rows["C3"] != ""].value_counts()
    assert (counts == 1).mean() > 0.6
    assert counts.iloc[0] == pytest.approx(0.04 * counts.sum(), rel=0.1)
    large = pd.to_numeric(criteo_rows["I5"]).dropna()
    assert large.max() > 100 * large.median() > 100_000


def test_avazu_layout(avazu_rows: pd.DataFrame) -> None:
    assert ",".join(avazu_rows.columns) == (
        "id,click,hour,C1,banner_pos,site_id,site_domain,site_category,app_id,app_domain,app_category,device_id,"
        "device_ip,device_model,device_type,device_conn_type,C14,C15,C16,C17,C18,C19,C20,C21"
    )
    assert len(avazu_rows) == ROWS
    assert avazu_rows["id"].is_unique
    assert avazu_rows["id"].str.fullmatch(r"\d{1,20}").all()
    hours = pd.to_datetime(avazu_rows["hour"], format="%y%m%d%H")
    assert hours.is_monotonic_increasing
    assert hours.nunique() == 20
    assert hours.iloc[-1] - hours.iloc[0] == pd.Timedelta(hours=19)
    for name in ("site_id", "app_category", "device_ip", "device_model"):
        assert avazu_rows[name].str.fullmatch(r"[0-9a-f]{8}").all(), name
    for name in ("C1", "banner_pos", "C14", "C17", "C20", "C21"):
        assert avazu_rows[name].str.fullmatch(r"-?\d+").all(), name
    assert avazu_rows["C1"].value_counts().index[0] == "1005"
    assert avazu_rows["device_ip"].nunique() > 20_000


@pytest.mark.parametrize("spec", FORMATS.values(), ids=lambda spec: spec.name)
def test_numbers_of_a_column_are_distinct(spec) -> None:
    as_numbers = [column for column in spec.columns if getattr(column, "as_number", False)]
    assert bool(as_numbers) == (spec.name == "avazu")
    for column in as_numbers:
        numbers = column.number_of_rank
        assert len(set(numbers.tolist())) == len(numbers) == column.vocabulary, column.name


@pytest.mark.parametrize(("log_format", "base_rate"), [("criteo", 0.22), ("avazu", 0.17)])
def test_truth_is_calibrated_and_gives_the_returned_scores(
    request: pytest.FixtureRequest, log_format: str, base_rate: float
) -> None:
    result: GenerateResult = request.getfixturevalue(log_format)
    rows = request.getfixturevalue(f"{log_format}_rows")
    labels = rows.iloc[:, 0 if log_format == "criteo" else 1].astype(int).to_numpy()
    truth = read_truth(result)
    assert [(name, str(dtype)) for name, dtype in truth.dtypes.items()] == [
        ("line", "int64"),
        ("probability", "float64"),
    ]
    first = 1 if log_format == "criteo" else 2  # behind a header
    assert (truth["line"] == first + np.arange(ROWS)).all()
    probability = truth["probability"].to_numpy()
    assert result.rows == ROWS
    assert result.positives == labels.sum()
    assert result.best_auc == pytest.approx(roc_auc_score(labels, probability), abs=1e-12)
    assert result.log_loss == pytest.approx(log_loss(labels, probability), rel=1e-9)
    assert probability.mean() == pytest.approx(base_rate, abs=0.005)
    assert 0.80 < result.best_auc < 0.86
    for part in np.array_split(np.argsort(probability), 10):
        assert labels[part].mean() == pytest.approx(probability[part].mean(), abs=4 * 0.5 / len(part) ** 0.5)


def test_a_base_rate_of_choice(tmp_path: pathlib.Path) -> None:
    result = generate("avazu", 20_000, 0, tmp_path / "log", click_model=ClickModel(base_rate=0.02))
    assert read_truth(result)["probability"].mean() == pytest.approx(0.02, abs=0.002)


@pytest.mark.slow
def test_seeds_share_the_effects_and_worlds_do_not(tmp_path: pathlib.Path) -> None:
    def rate_by_value(seed: int, world: int) -> pd.Series:
        model = ClickModel("none", main_strength=2.0, world=world)
        result = generate("criteo", 20_000, seed, tmp_path / "log", click_model=model)
        rows = read_criteo(result.path).assign(probability=read_truth(result)["probability"])
        return rows.groupby("C14")["probability"].mean().reindex(sorted(set(rows["C14"].value_counts().index[:5])))

    first = rate_by_value(1, 0)
    np.testing.assert_allclose(first, rate_by_value(2, 0), atol=0.04)
    assert np.abs(first - rate_by_value(1, 1)).max() > 0.05


@pytest.mark.parametrize("spec", FORMATS.values(), ids=lambda spec: spec.name)
def test_planted_columns_split_into_equal_halves(spec) -> None:
    columns = {column.name: column for column in spec.columns}
    for name in set(itertools.chain(*spec.pairs, *spec.triples)):
        shares = code_shares(columns[name])
        assert shares.sum() == pytest.approx(1.0)
        assert abs(shares @ balanced_signs(shares)) < 0.03, name


@pytest.mark.parametrize("spec", FORMATS.values(), ids=lambda spec: spec.name)
def test_triples_do_not_share_columns_or_draws(spec) -> None:
    columns = {column.name: column for column in spec.columns}
    used = [columns[name] for triple in spec.triples for name in triple]
    assert len({column.draw_key for column in used}) == len(used)
    empty = [column.missing_key for column in used if column.missing]
    assert len(set(empty)) == len(empty)


def planted(tmp_path: pathlib.Path, interactions: str, strength: float = 2.0) -> tuple[pd.DataFrame, np.ndarray]:
    """A log without main effects: columns of the click model as it sees them, and labels."""
    model = ClickModel(interactions, 0.0, strength, strength)  # type: ignore[arg-type]
    result = generate("criteo", ROWS, 11, tmp_path / "log", click_model=model)
    rows = read_criteo(result.path)
    names = sorted(set(itertools.chain(*FORMATS["criteo"].pairs, *FORMATS["criteo"].triples)))
    frame = pd.DataFrame({name: log_bucket(rows[name]) if name.startswith("I") else rows[name] for name in names})
    return frame, rows["label"].astype(int).to_numpy()


@pytest.mark.slow
def test_pairs_show_in_pairs_and_not_in_columns(tmp_path: pathlib.Path) -> None:
    frame, labels = planted(tmp_path, "pairs")
    nothing = pd.Series("", index=frame.index)
    for left, right in FORMATS["criteo"].pairs:
        assert pair_statistic(frame[left], frame[right], labels) > 10
    for name in frame:
        assert pair_statistic(frame[name], nothing, labels) < 3, name


@pytest.mark.slow
def test_triples_show_in_triples_and_not_in_pairs(tmp_path: pathlib.Path) -> None:
    frame, labels = planted(tmp_path, "triples")
    for first, second, third in FORMATS["criteo"].triples:
        assert pair_statistic(frame[first] + "|" + frame[second], frame[third], labels) > 10
    for left, right in itertools.combinations(frame, 2):
        assert pair_statistic(frame[left], frame[right], labels) < 2, (left, right)


def test_logs_without_any_effect_have_a_constant_probability(tmp_path: pathlib.Path) -> None:
    result = generate("criteo", 2000, 0, tmp_path / "log", click_model=ClickModel("none", 0.0))
    np.testing.assert_allclose(read_truth(result)["probability"], 0.22)
    assert result.best_auc == 0.5


@pytest.mark.slow
def test_linear_model_leaves_headroom(criteo: GenerateResult, criteo_rows: pd.DataFrame) -> None:
    features = criteo_rows[LOW_CARDINALITY].join(criteo_rows[CRITEO_NAMES[1:14]].apply(log_bucket))
    labels = criteo_rows["label"].astype(int).to_numpy()
    split = int(0.8 * ROWS)
    encoder = OneHotEncoder(handle_unknown="infrequent_if_exist", min_frequency=10).fit(features[:split])
    linear = LogisticRegression(C=0.1, max_iter=200).fit(encoder.transform(features[:split]), labels[:split])
    linear_auc = roc_auc_score(labels[split:], linear.decision_function(encoder.transform(features[split:])))
    best_auc = roc_auc_score(labels[split:], read_truth(criteo)["probability"][split:])
    assert 0.68 < linear_auc < best_auc - 0.06


def test_a_sample_in_memory_is_the_generated_log(criteo: GenerateResult, criteo_rows: pd.DataFrame) -> None:
    spec, rows = FORMATS["criteo"], BLOCK_ROWS + 500
    drawn = sample(spec, ClickModel(), rows, 3)
    np.testing.assert_array_equal(drawn.labels, criteo_rows["label"].astype(int)[:rows])
    np.testing.assert_array_equal(drawn.probabilities, read_truth(criteo)["probability"][:rows])
    assert drawn.codes.shape == (rows, 39)
    for column, codes, count in zip(spec.columns, drawn.codes.T, drawn.code_counts, strict=True):
        assert 0 <= codes.min() and codes.max() < count
        missing = (criteo_rows[column.name] == "")[:rows]
        np.testing.assert_array_equal(codes == count - 1, missing, err_msg=column.name)
        shares = np.bincount(codes, minlength=count) / rows
        np.testing.assert_allclose(shares, code_shares(column), atol=0.012, err_msg=column.name)


def test_gzip_holds_the_same_rows(tmp_path: pathlib.Path, criteo: GenerateResult) -> None:
    first = generate("criteo", 2000, 3, tmp_path / "a.tsv.gz")
    again = generate("criteo", 2000, 3, tmp_path / "b.tsv.gz")
    assert first.truth_path == tmp_path / "a.tsv.gz.truth.parquet"
    assert first.path.read_bytes() == again.path.read_bytes()
    text = gzip.decompress(first.path.read_bytes())
    assert criteo.path.read_bytes().startswith(text)
    assert text.count(b"\n") == 2000


def test_best_auc_of_a_long_log_is_that_of_its_first_rows(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, criteo: GenerateResult, criteo_rows: pd.DataFrame
) -> None:
    monkeypatch.setattr(generator, "AUC_ROWS", 35_000)
    labels = criteo_rows["label"].astype(int)[:35_000]
    expected = roc_auc_score(labels, read_truth(criteo)["probability"][:35_000])
    assert generate("criteo", ROWS, 3, tmp_path / "log").best_auc == pytest.approx(expected, abs=1e-12)


def test_one_row_has_no_auc(tmp_path: pathlib.Path) -> None:
    assert np.isnan(generate("avazu", 1, 0, tmp_path / "log").best_auc)


def test_progress_and_replacing_a_file(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "log"
    path.write_text("old")
    done: list[int] = []
    generate("avazu", BLOCK_ROWS + 10, 0, path, done.append)
    assert done == [BLOCK_ROWS, BLOCK_ROWS + 10]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["log", "log.truth.parquet"]


def test_an_interrupted_run_leaves_nothing(tmp_path: pathlib.Path) -> None:
    def interrupt(rows: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        generate("criteo", 10, 0, tmp_path / "log", interrupt)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("log_format", "rows", "seed", "output", "message"),
    [
        ("criteo", 0, 1, "log", "rows should be a whole number of at least 1. Received: 0"),
        ("criteo", 1.5, 1, "log", "Received: 1.5"),
        ("criteo", 10, -1, "log", "seed should be a whole number of at least 0. Received: -1"),
        ("movielens", 10, 1, "log", "unknown log format 'movielens': use one of criteo, avazu"),
        ("criteo", 10, 1, "absent/log", "does not exist"),
        ("criteo", 10, 1, ".", "is a folder"),
    ],
)
def test_bad_arguments(
    tmp_path: pathlib.Path, log_format: str, rows: int, seed: int, output: str, message: str
) -> None:
    with pytest.raises(InputError) as error:
        generate(log_format, rows, seed, tmp_path / output)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [{"interactions": "quads"}, {"main_strength": -1.0}, {"pair_strength": float("nan")}, {"base_rate": 1.0}],
)
def test_bad_click_models(arguments: dict) -> None:
    with pytest.raises(InputError, match="Received"):
        ClickModel(**arguments)


def test_a_click_model_with_an_unknown_column(tmp_path: pathlib.Path) -> None:
    with pytest.raises(InputError, match="'C99'"):
        generate("criteo", 10, 0, tmp_path / "log", click_model=ClickModel(pairs=(("C6", "C99"),)))
