"""Small files in the shapes of published data sets, with clicks that a model can learn."""

import gzip
import json
import pathlib
from collections.abc import Callable

import numpy as np

ROWS = 600


def write(path: pathlib.Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)


def clicks(random: np.random.Generator, items: np.ndarray) -> np.ndarray:
    """Clicks on even items more often than on odd ones."""
    return (random.random(len(items)) < np.where(items % 2, 0.15, 0.6)).astype(int)


def _criteo_text(seed: int, rows: int) -> str:
    random = np.random.default_rng(seed)
    ids = random.integers(0, 20, (rows, 26))
    label = clicks(random, ids[:, 0])
    numbers = [["" if n < 0 else str(n) for n in row] for row in random.integers(-5, 50, (rows, 13))]
    lines = ([str(y), *n, *(f"{v:08x}" for v in c)] for y, n, c in zip(label, numbers, ids, strict=True))
    return "".join("\t".join(line) + "\n" for line in lines)


def criteo(folder: pathlib.Path) -> None:
    write(folder / "dac" / "train.txt", _criteo_text(0, ROWS))
    write(
        folder / "dac" / "test.txt", "".join(line.partition("\t")[2] + "\n" for line in _criteo_text(1, 9).splitlines())
    )
    write(folder / "dac" / "readme.txt", "Display Advertising Challenge")


def criteo_1tb(folder: pathlib.Path) -> None:
    for day in range(12):  # day_10 is after day_9
        write(folder / f"day_{day}.gz", _criteo_text(day, 100))


def avazu(folder: pathlib.Path) -> None:
    random = np.random.default_rng(0)
    names = "C1 banner_pos site_id site_domain site_category app_id app_domain app_category device_id device_ip"
    names = [*names.split(), "device_model", "device_type", "device_conn_type", *(f"C{n}" for n in range(14, 22))]
    ids = random.integers(0, 12, (ROWS, len(names)))
    label = clicks(random, ids[:, 2])
    hours = 14102100 + np.arange(ROWS) * 24 // ROWS
    lines = (
        ",".join([f"{10**19 + n}", str(y), str(h), *(f"{v:08x}" for v in row)])
        for n, (y, h, row) in enumerate(zip(label, hours, ids, strict=True))
    )
    write(folder / "train.gz", "\n".join([",".join(["id", "click", "hour", *names]), *lines]) + "\n")


def _ratings(rows: int = ROWS) -> list[tuple[int, int, int, int]]:
    random = np.random.default_rng(0)
    users, items = random.integers(1, 40, rows), random.integers(1, 60, rows)
    stars = np.where(clicks(random, items) == 1, 5, 3)
    times = 978_300_000 + np.sort(random.integers(0, 10**6, rows))
    return list(zip(users.tolist(), items.tolist(), stars.tolist(), times.tolist(), strict=True))


def movielens_1m(folder: pathlib.Path) -> None:
    place = folder / "ml-1m"
    write(place / "ratings.dat", "".join("::".join(map(str, row)) + "\n" for row in _ratings()))
    users = (f"{n}::{'FM'[n % 2]}::{(1, 18, 25)[n % 3]}::{n % 21}::{48067 + n}\n" for n in range(1, 40))
    write(place / "users.dat", "".join(users))
    movies = "".join(
        f"{n}::Le titre numéro {n} (1995)::{'Animation|Comedy' if n % 2 else 'Drama'}\n" for n in range(1, 60)
    )
    (place / "movies.dat").write_bytes(movies.encode("latin-1"))
    write(place / "README", "SUMMARY")


def movielens_100k(folder: pathlib.Path) -> None:
    write(folder / "u.data", "".join("\t".join(map(str, row)) + "\n" for row in _ratings()))
    users = (f"{n}|{20 + n % 30}|{'FM'[n % 2]}|{('student', 'writer')[n % 2]}|{85711 + n}\n" for n in range(1, 40))
    write(folder / "u.user", "".join(users))


def movielens_25m(folder: pathlib.Path) -> None:
    rows = (f"{u},{i},{s}.0,{t}\n" for u, i, s, t in _ratings())
    write(folder / "ratings.csv", "userId,movieId,rating,timestamp\n" + "".join(rows))
    movies = (
        f'{n},"Title, The {n} (1995)",{"Comedy|Drama" if n % 2 else "(no genres listed)"}\n' for n in range(1, 60)
    )
    write(folder / "movies.csv", "movieId,title,genres\n" + "".join(movies))


def mind(folder: pathlib.Path) -> None:
    random = np.random.default_rng(0)
    number = 0
    for part, rows, days in (("MINDsmall_train", 200, (13, 14)), ("MINDsmall_dev", 60, (15,))):
        lines = []
        for row in range(rows):
            items = random.choice(40, 4, replace=False)
            shown = " ".join(f"N{item}-{y}" for item, y in zip(items, clicks(random, items), strict=True))
            history = " ".join(f"N{item}" for item in random.integers(0, 40, row % 5))
            time = f"11/{days[row % len(days)]}/2019 {1 + row % 12}:05:58 {'AP'[row % 2]}M"
            lines.append(f"{number}\tU{row // 2 % 30}\t{time}\t{history}\t{shown}\n")
            number += 1
        write(folder / part / "behaviors.tsv", "".join(lines))
        entities = '[]\t[{"Label": "A", "Confidence": 1.0}]'
        news = (
            f'N{n}\t{("sports", "news")[n % 2]}\tsub{n % 5}\tThe "title" of number {n}\tAbstract\thttps://x/{n}\t{entities}\n'
            for n in range(40)
        )
        write(folder / part / "news.tsv", "".join(news))


def taobao_ads(folder: pathlib.Path) -> None:
    random = np.random.default_rng(0)
    users, ads = random.integers(1, 50, ROWS), random.integers(1, 60, ROWS)
    label = clicks(random, ads)
    times = 1_494_000_000 + np.arange(ROWS) * 8 * 86_400 // ROWS
    lines = (f"{u},{t},{a},430548_1007,{1 - y},{y}\n" for u, t, a, y in zip(users, times, ads, label, strict=True))
    write(folder / "raw_sample.csv", "user,time_stamp,adgroup_id,pid,nonclk,clk\n" + "".join(lines))
    rows = (f"{n},{n % 9},{n % 20},{n % 5},{'NULL' if n % 4 else n % 7},{n * 1.5}\n" for n in range(1, 60))
    write(folder / "ad_feature.csv", "adgroup_id,cate_id,campaign_id,customer,brand,price\n" + "".join(rows))
    header = "userid,cms_segid,cms_group_id,final_gender_code,age_level,pvalue_level,shopping_level,occupation,"
    header += "new_user_class_level \n"  # with the blank of the published file
    rows = (f"{n},{n % 7},{n % 5},{1 + n % 2},{n % 6},{n % 3 or ''},3,{n % 2},{n % 4 or ''}\n" for n in range(1, 45))
    write(folder / "user_profile.csv", header + "".join(rows))


def taobao_events(folder: pathlib.Path) -> None:
    random = np.random.default_rng(0)
    users, items = random.integers(1, 30, ROWS), random.integers(1, 40, ROWS)
    bought = clicks(random, items)
    times = 1_511_500_000 + np.arange(ROWS)
    kinds = np.where(bought == 1, "buy", np.array(["pv", "cart", "fav"])[items % 3])
    lines = (f"{u},{i},{i % 6},{kind},{t}\n" for u, i, kind, t in zip(users, items, kinds, times, strict=True))
    write(folder / "UserBehavior.csv", "".join(lines))


def kuairand(folder: pathlib.Path) -> None:
    random = np.random.default_rng(0)
    data = folder / "KuaiRand-Pure" / "data"
    header = (
        "user_id,video_id,date,hourmin,time_ms,is_click,is_like,is_follow,is_comment,is_forward,is_hate,long_view,"
        "play_time_ms,duration_ms,profile_stay_time,comment_stay_time,is_profile_enter,is_rand,tab\n"
    )
    for place, name in enumerate(("4_08_to_4_21", "4_22_to_5_08")):
        users, videos = random.integers(0, 40, ROWS // 2), random.integers(0, 50, ROWS // 2)
        label = clicks(random, videos)
        times = 1_649_400_000_000 + place * 10**9 + np.arange(ROWS // 2) * 3_000_000
        lines = (
            f"{u},{v},20220408,1400,{t},{y},0,0,0,0,0,{y},{y * 9000},{10_000 + v},0,0,0,0,{v % 3}\n"
            for u, v, t, y in zip(users, videos, times, label, strict=True)
        )
        write(data / f"log_standard_{name}_pure.csv", header + "".join(lines))
    write(data / "log_random_4_22_to_5_08_pure.csv", header)
    users_header = "user_id,user_active_degree,is_lowactive_period,follow_user_num,follow_user_num_range,"
    users_header += "register_days,onehot_feat0\n"
    ranges = ("0", '"(0,10]"')
    rows = (f"{n},{('high', 'full')[n % 2]}_active,0,{n},{ranges[n % 2]},{n * 10},{n % 3}\n" for n in range(40))
    write(data / "user_features_pure.csv", users_header + "".join(rows))
    videos_header = (
        "video_id,author_id,video_type,upload_dt,upload_type,visible_status,video_duration,server_width,server_height,"
        "music_id,music_type,tag\n"
    )
    rows = (
        f"{n},{n % 9},{('NORMAL', 'AD')[n % 2]},2022-04-01,LongImport,1.0,{n}.5,720,1280,{n % 7},9.0,"
        + (f'"{n % 5},{n % 7}"' if n % 3 else "")
        + "\n"
        for n in range(50)
    )
    write(data / "video_features_basic_pure.csv", videos_header + "".join(rows))


def amazon_2014(folder: pathlib.Path) -> None:
    rows = (
        {
            **{
                "reviewerID": f"A{u}",
                "asin": f"B{i:09d}",
                "reviewerName": "x",
                "helpful": [0, 0],
                "reviewText": "Good.",
            },
            **{"overall": float(s), "summary": "s", "unixReviewTime": t, "reviewTime": "01 1, 2014"},
        }
        for u, i, s, t in _ratings()
    )
    write(folder / "reviews_Electronics_5.json.gz", "".join(json.dumps(row) + "\n" for row in rows))
    meta = (f"{{'asin': 'B{i:09d}', 'categories': [['Electronics']], 'title': \"It's {i}\"}}\n" for i in range(1, 60))
    write(folder / "meta_Electronics.json.gz", "".join(meta))


def amazon_2023(folder: pathlib.Path) -> None:
    rows = (
        {
            **{
                "rating": float(s),
                "title": "t",
                "text": "x",
                "images": [],
                "asin": f"B{i:09d}",
                "parent_asin": f"B{i:09d}",
            },
            **{"user_id": f"A{u}", "timestamp": t * 1000, "helpful_vote": 0, "verified_purchase": True},
        }
        for u, i, s, t in _ratings()
    )
    write(folder / "All_Beauty.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    meta = (
        {
            **{"main_category": f"All {i % 3}", "title": f"Item {i}", "average_rating": 4.5, "price": None},
            **{"store": f"S{i % 4}", "categories": [], "details": {"Brand": "x"}, "parent_asin": f"B{i:09d}"},
        }
        for i in range(1, 60)
    )
    write(folder / "meta_All_Beauty.jsonl", "".join(json.dumps(row) + "\n" for row in meta))


def amazon_ratings(folder: pathlib.Path) -> None:
    rows = (f"B{i:09d},A{u}LONGNAME,{s}.0,{t}\n" for u, i, s, t in _ratings())
    write(folder / "ratings_Electronics.csv", "".join(rows))


# By the name of the shape: the data set, and what writes its files.
SHAPES: dict[str, tuple[str, Callable[[pathlib.Path], None]]] = {
    "criteo": ("criteo", criteo),
    "criteo_1tb": ("criteo_1tb", criteo_1tb),
    "avazu": ("avazu", avazu),
    "movielens 1M": ("movielens", movielens_1m),
    "movielens 100K": ("movielens", movielens_100k),
    "movielens 25M": ("movielens", movielens_25m),
    "mind": ("mind", mind),
    "taobao ads": ("taobao", taobao_ads),
    "taobao events": ("taobao", taobao_events),
    "kuairand": ("kuairand", kuairand),
    "amazon 2014": ("amazon", amazon_2014),
    "amazon 2023": ("amazon", amazon_2023),
    "amazon ratings": ("amazon", amazon_ratings),
}
