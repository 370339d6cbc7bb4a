"""Logs like those of a newcomer, with a known click model, as inputs of `ctrpipe init`."""

import dataclasses
import json
import pathlib
from collections.abc import Callable

import numpy as np
from scipy.special import expit

from benchmarks.harness.small_logs import write_bank, write_csv, write_rare
from ctrpipe.common.files import write_text

WORDS = 4000  # of titles
_START = 1_767_225_600  # 2026-01-01, in epoch seconds
_DAYS = 86_400


@dataclasses.dataclass(frozen=True)
class FirstLog:
    """A log, and an expert's knowledge of it.

    Attributes:
        write: Writes the log to a path.
        suffix: The end of its name.
        categories: The columns of numbers that are categories.
        left_out: The columns that are no features.
        lists: The columns of lists or texts, by name, each with the sign between two elements.
        label: The label's column where its name does not say so; None where it does.
    """

    write: Callable[[pathlib.Path], None]
    suffix: str = ".csv"
    categories: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    lists: dict[str, str] = dataclasses.field(default_factory=dict)
    label: str | None = None


def write_shop(path: pathlib.Path, rows: int = 60_000, seed: int = 1) -> None:
    """Writes a shop's log: users with tastes, products, prices, discounts, and whether the user purchased."""
    random = np.random.default_rng(seed)
    users, products, brands = 4000, 1200, 60
    user = np.minimum(random.zipf(1.35, rows) - 1, users - 1)
    product = np.minimum(random.zipf(1.25, rows) - 1, products - 1)
    category_of, brand_of = random.integers(0, 14, products), random.integers(0, brands, products)
    price_of = np.round(random.lognormal(3.2, 0.9, products), 2)
    taste, price_taste = random.normal(0, 0.7, (users, 14)), random.normal(0, 0.4, users)
    discount = np.where(random.random(rows) < 0.7, 0, random.integers(1, 9, rows) * 5)
    price = price_of[product] * (1 - discount / 100)
    category = category_of[product]
    device = random.choice(["mobile", "desktop", "tablet"], rows, p=[0.62, 0.3, 0.08])
    returning = random.random(rows) < 0.35
    time = np.sort(_START + random.integers(0, 14 * _DAYS, rows))
    hour = time // 3600 % 24
    score = (
        taste[user, category] + price_taste[user] * (np.log(price) - 3.2) + random.normal(0, 0.35, products)[product]
    )
    score += random.normal(0, 0.25, brands)[brand_of[product]] + 0.025 * discount * (np.log(price) > 3.4)
    score += 0.35 * returning + 0.3 * ((hour > 17) & (device == "mobile")) - 0.25 * (device == "tablet")
    bought = random.random(rows) < expit(score - 2.9)
    shown = np.datetime64("1970-01-01") + time.astype("timedelta64[s]")
    session = np.char.add("s", random.integers(0, 10**9, rows).astype(str))
    columns = {
        "session_id": session,
        "shown_at": np.datetime_as_string(shown, unit="s"),
        "user_id": user + 10_000,
        "product_id": product + 500,
        "category": np.char.add("cat", category.astype(str)),
        "brand": np.char.add("b", brand_of[product].astype(str)),
        "price": np.char.mod("%.2f", price),
        "discount": discount,
        "device": device,
        "is_returning": np.where(returning, "true", "false"),
        "purchased": np.where(bought, "yes", "no"),
    }
    write_csv(path, tuple(columns), tuple(columns.values()))


def write_wide(path: pathlib.Path, rows: int = 9600, seed: int = 1) -> None:
    """Writes a log of 300 columns, 200 numbers and 100 categories; fifteen of them affect the label."""
    random = np.random.default_rng(seed)
    numbers = random.normal(size=(rows, 200)) * random.lognormal(1, 1.5, 200)
    scaled = numbers / numbers.std(axis=0)
    sizes = random.integers(3, 40, 100)
    categories = np.stack([random.integers(0, size, rows) for size in sizes], axis=1)
    score = scaled[:, :6] @ np.array([0.6, -0.5, 0.4, 0.35, -0.3, 0.25]) + 0.45 * (np.abs(scaled[:, 6]) > 1)
    score += 0.5 * (scaled[:, 7] > 0) * (scaled[:, 8] > 0)
    for place in range(6):
        score += random.normal(0, 0.45, sizes[place])[categories[:, place]]
    clicks = (random.random(rows) < expit(score - 1.9)).astype(int)
    names = (*(f"n{place}" for place in range(200)), *(f"k{place}" for place in range(100)), "click")
    words = [np.char.add(f"v{place}_", categories[:, place].astype(str)) for place in range(100)]
    write_csv(path, names, (*np.char.mod("%.5g", numbers).T, *words, clicks))


def write_films(path: pathlib.Path, rows: int = 50_000, seed: int = 1) -> None:
    """Writes ratings like MovieLens's, joined with attributes of users and films."""
    random = np.random.default_rng(seed)
    users, films = 900, 1500
    kinds = np.array("Action Comedy Drama Horror Romance Thriller War Western Crime Musical".split())
    user = np.minimum(random.geometric(1 / 350, rows) - 1, users - 1)
    film = np.minimum(random.geometric(1 / 320, rows) - 1, films - 1)
    left, right = random.normal(0, 0.6, (users, 6)), random.normal(0, 0.6, (films, 6))
    mood, worth = random.normal(0, 0.45, users), random.normal(0, 0.55, films)
    age, gender = random.integers(16, 70, users), random.choice(["M", "F"], users)
    kinds_of = [random.choice(len(kinds), random.integers(1, 4), replace=False) for _ in range(films)]
    liked = random.normal(0, 0.35, (2, len(kinds)))
    genre = np.array([np.mean(liked[:, each], axis=1) for each in kinds_of])
    score = mood[user] + worth[film] + (left[user] * right[film]).sum(axis=1)
    score += genre[film, (gender[user] == "M").astype(int)] + 0.006 * (age[user] - 40)
    rating = np.clip(np.round(3.55 + 0.75 * score + random.normal(0, 0.75, rows)), 1, 5).astype(int)
    times = np.sort(_START + random.integers(0, 120 * _DAYS, rows))
    genres = np.array(["|".join(kinds[each]) for each in kinds_of])
    columns = {
        "user_id": user + 1,
        "movie_id": film + 1,
        "rating": rating,
        "timestamp": times,
        "age": age[user],
        "gender": gender[user],
        "year": (random.integers(1950, 2026, films))[film],
        "genres": genres[film],
    }
    write_csv(path, tuple(columns), tuple(columns.values()))


def write_histories(path: pathlib.Path, rows: int = 40_000, seed: int = 1) -> None:
    """Writes impressions with a user, an item, and the items that the user has clicked before."""
    random = np.random.default_rng(seed)
    users, items, topics = 2500, 600, 20
    topic_of = random.integers(0, topics, items)
    interests = np.stack([random.choice(topics, 3, replace=False) for _ in range(users)])
    worth = random.normal(0, 0.5, items)
    past: list[list[int]] = [list(random.choice(items, 3)) for _ in range(users)]
    user = random.integers(0, users, rows)
    item = np.minimum(random.geometric(1 / 150, rows) - 1, items - 1)
    chances = random.random(rows)
    hour = (np.arange(rows) * 24 * 7 // rows) % 24
    lines = ["user,item,topic,hour,clicked_items,click"]
    for row in range(rows):
        seen = past[user[row]]
        shared = sum(topic_of[one] == topic_of[item[row]] for one in seen[-10:])
        score = worth[item[row]] + 0.9 * (topic_of[item[row]] in interests[user[row]]) + 0.35 * min(shared, 4) - 2.2
        clicked = chances[row] < expit(score)
        history = "|".join(f"i{one}" for one in seen[-10:])
        lines.append(f"u{user[row]},i{item[row]},t{topic_of[item[row]]},{hour[row]},{history},{int(clicked)}")
        if clicked:
            seen.append(int(item[row]))
    write_text(path, "\n".join(lines) + "\n")


def write_titles(path: pathlib.Path, rows: int = 30_000, seed: int = 1) -> None:
    """Writes a log of JSON lines. Words of the titles decide most clicks, some of them in one section only."""
    random = np.random.default_rng(seed)
    sections = np.array(["news", "sport", "arts", "money"])
    words = np.array([f"w{number}" for number in range(WORDS)])
    section = random.integers(0, len(sections), rows)
    counts = random.integers(4, 12, rows)
    pleasing = random.normal(0, 0.35, WORDS)
    by_section = np.where(random.random((len(sections), WORDS)) < 0.1, random.normal(0, 0.7, (len(sections), WORDS)), 0)
    chances, position = random.random(rows), random.integers(1, 6, rows)
    lines = []
    for row in range(rows):
        own = np.minimum(random.zipf(1.3, counts[row]) - 1, WORDS - 1)
        score = (pleasing[own] + by_section[section[row], own]).sum() - 0.25 * position[row] - 1.2
        values = {
            "title": " ".join(words[own]) + f" no{row}",
            "section": str(sections[section[row]]),
            "position": int(position[row]),
            "click": int(chances[row] < expit(score)),
        }
        lines.append(json.dumps(values))
    write_text(path, "\n".join(lines) + "\n")


def write_few(path: pathlib.Path, rows: int = 2000, seed: int = 1) -> None:
    """Writes 2,000 rows with a few columns."""
    random = np.random.default_rng(seed)
    city, plan = random.integers(0, 25, rows), random.integers(0, 4, rows)
    age, visits = random.integers(18, 80, rows), random.poisson(3, rows)
    spent = np.round(random.lognormal(3, 1, rows), 2)
    score = random.normal(0, 0.4, 25)[city] + random.normal(0, 0.6, 4)[plan] + 0.25 * visits - 0.02 * (age - 45)
    score += 0.3 * (np.log(spent) - 3)
    clicks = random.random(rows) < expit(score - 1.8)
    columns = {
        "city": np.char.add("city", city.astype(str)),
        "plan": np.char.add("p", plan.astype(str)),
        "age": age,
        "visits": visits,
        "spent": np.char.mod("%.2f", spent),
        "clicked": clicks.astype(int),
    }
    write_csv(path, tuple(columns), tuple(columns.values()))


def _write_ads(path: pathlib.Path) -> None:
    write_rare(path, rows=300_000)


LOGS = {
    "shop": FirstLog(write_shop, categories=("user_id", "product_id"), left_out=("session_id",)),
    "ads": FirstLog(_write_ads),
    "bank": FirstLog(write_bank),
    "wide": FirstLog(write_wide),
    "films": FirstLog(write_films, categories=("user_id", "movie_id"), lists={"genres": "|"}),
    "histories": FirstLog(write_histories, lists={"clicked_items": "|"}),
    "titles": FirstLog(write_titles, ".jsonl", lists={"title": " "}),
    "few": FirstLog(write_few),
}
