"""Small logs with headers, such as a newcomer may have: few values, only numbers, or rare clicks.

The true probabilities of a log are in <log>.truth.parquet next to it.
"""

import pathlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from scipy.special import expit

from ctrpipe.common.files import atomic_path, write_text

JOBS = ("admin.", "blue-collar", "entrepreneur", "management", "retired", "services", "student", "technician")
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
BANK = ("age", "job", "marital", "balance", "housing", "loan", "day", "month", "duration", "campaign", "pdays")


def write_bank(path: pathlib.Path, rows: int = 45_000, seed: int = 1) -> None:
    """Writes a log like the bank marketing data of Moro et al. (2014): few values, skewed numbers, 12% positives."""
    random = np.random.default_rng(seed)
    age = np.clip(random.gamma(12, 3.4, rows), 18, 95).astype(int)
    job, marital = random.integers(0, len(JOBS), rows), random.integers(0, 3, rows)
    balance = (random.lognormal(6.5, 1.3, rows) * np.where(random.random(rows) < 0.08, -0.4, 1)).astype(int)
    housing, loan = random.random(rows) < 0.55, random.random(rows) < 0.16
    day, month = random.integers(1, 32, rows), random.integers(0, 12, rows)
    duration = np.maximum(random.lognormal(5.2, 0.9, rows), 1).astype(int)
    campaign = random.geometric(0.36, rows)
    pdays = np.where(random.random(rows) < 0.82, -1, random.integers(1, 400, rows))
    score = 1.35 * (np.log(duration) - 5.2) + 0.0009 * (age - 42) ** 2 - 0.14 * (campaign - 1) - 0.6 * housing
    score += -0.45 * loan + 0.75 * (pdays > 0) + 0.3 * np.log1p(np.maximum(balance, 0)) / 7
    score += random.normal(0, 0.35, len(JOBS))[job] + random.normal(0, 0.6, len(MONTHS))[month] - 0.1 * marital
    probability = expit(score - 3.5)
    clicks = random.random(rows) < probability
    yes_no = np.array(["no", "yes"])
    marital_names = np.array(["married", "single", "divorced"])
    columns = (
        *(age, np.array(JOBS)[job], marital_names[marital], balance, yes_no[housing.astype(int)]),
        *(yes_no[loan.astype(int)], day, np.array(MONTHS)[month], duration, campaign, pdays),
    )
    write_csv(path, (*BANK, "y"), (*columns, yes_no[clicks.astype(int)]))
    write_truth(path, probability)


def write_numbers(path: pathlib.Path, rows: int = 20_000, seed: int = 1) -> None:
    """Writes a log with only numbers and 17% positives."""
    random = np.random.default_rng(seed)
    values = random.normal(size=(rows, 8))
    score = values[:, :4] @ np.array([0.8, -0.6, 0.4, 0.3]) + 0.5 * (values[:, 4] ** 2 - 1)
    probability = expit(score - 2.0)
    clicks = (random.random(rows) < probability).astype(int)
    columns = [np.char.mod("%.4f", 100.0**index * column) for index, column in enumerate(values.T)]
    write_csv(path, (*(f"x{index}" for index in range(8)), "click"), (*columns, clicks))
    write_truth(path, probability)


def write_rare(path: pathlib.Path, rows: int = 200_000, seed: int = 1, rate: float = 0.001) -> None:
    """Writes a log with skewed ids.

    `rate` is the click rate of a row whose ids have no effect. About twice as many of all rows are clicks.
    """
    random = np.random.default_rng(seed)
    sizes = {"site": 300, "ad": 500, "device": 6, "hour": 24}
    ids = {name: np.minimum(random.zipf(1.3, rows) - 1, size - 1) for name, size in sizes.items()}
    score = np.zeros(rows)
    for name, size in sizes.items():
        score += random.normal(0, 0.7, size)[ids[name]]
    probability = expit(score + np.log(rate) - 0.2)
    clicks = random.random(rows) < probability
    columns = [np.char.add(name[0], values.astype(str)) for name, values in ids.items()]
    write_csv(path, (*sizes, "click"), (*columns, clicks.astype(int)))
    write_truth(path, probability)


LOGS = {"bank": write_bank, "numbers": write_numbers, "rare": write_rare}


def truth_of(path: pathlib.Path) -> pathlib.Path:
    """Returns the file of a log's true probabilities, as `ctrpipe generate` names it."""
    return path.with_name(f"{path.name}.truth.parquet")


def write_truth(path: pathlib.Path, probabilities: np.ndarray) -> None:
    """Writes the true probabilities of a log's rows, `[N]`, next to the log."""
    with atomic_path(truth_of(path)) as unfinished:
        pa.parquet.write_table(pa.table({"probability": probabilities}), unfinished)


def write_csv(path: pathlib.Path, names: tuple[str, ...], columns: tuple[np.ndarray, ...]) -> None:
    """Writes columns as text below a header."""
    lines = np.stack([np.asarray(column).astype(str) for column in columns], axis=1)
    write_text(path, "\n".join([",".join(names), *map(",".join, lines)]) + "\n")
