"""The layouts of generated logs, with value shares and click rates similar to those of the public logs."""

import dataclasses

from ctrpipe.transforms.generate.columns import Categorical, Column, Integer


@dataclasses.dataclass(frozen=True)
class LogLayout:
    """The layout of a log: its columns in file order, without label, id and time, and its planted interactions.

    The columns of pairs and triples can be split into halves of equal mass (no value has more than half of the rows),
    and are drawn independently of each other. A triple therefore has no effect on any single column or pair.
    """

    name: str
    columns: tuple[Column, ...]
    base_rate: float
    pairs: tuple[tuple[str, str], ...]
    triples: tuple[tuple[str, str, str], ...]
    delimiter: str
    header: str
    # Avazu's rows have an id and a time in hours, which advances every `rows_per_hour` rows.
    with_id_and_hour: bool = False
    rows_per_hour: int = 2000
    # Texts, each with the columns whose values are its words, in order. These columns are not in the file.
    texts: tuple[tuple[str, tuple[str, ...]], ...] = ()


CRITEO = LogLayout(
    name="criteo",
    columns=(
        Integer("I1", 0.447, "ads", zero=0.81, log_mean=0.9, log_std=1.3, maximum=600),
        Integer("I2", 0.0, negative=0.098, zero=0.181, log_mean=2.9, log_std=2.3, maximum=20000),
        Integer("I3", 0.193, zero=0.009, log_mean=2.1, log_std=1.7, maximum=65535),
        Integer("I4", 0.194, "visits", zero=0.082, log_mean=1.7, log_std=1.2, maximum=500),
        Integer("I5", 0.048, "user", zero=0.021, log_mean=7.3, log_std=2.8, maximum=2000000),
        Integer("I6", 0.252, zero=0.086, log_mean=3.8, log_std=1.8, maximum=50000),
        Integer("I7", 0.048, "user", zero=0.268, log_mean=1.8, log_std=1.6, maximum=10000),
        Integer("I8", 0.001, zero=0.113, log_mean=2.2, log_std=1.2, maximum=4500),
        Integer("I9", 0.048, "user", zero=0.033, log_mean=3.7, log_std=1.7, maximum=26000),
        Integer("I10", 0.447, "ads", zero=0.866, log_mean=0.2, log_std=0.6, maximum=9),
        Integer("I11", 0.048, "user", zero=0.28, log_mean=0.8, log_std=1.1, maximum=150),
        Integer("I12", 0.773, zero=0.742, log_mean=0.7, log_std=1.2, maximum=500),
        Integer("I13", 0.194, "visits", zero=0.079, log_mean=1.8, log_std=1.3, maximum=7000),
        Categorical("C1", vocabulary=1500, top=(0.503, 0.167, 0.083, 0.049), exponent=2.0),
        Categorical("C2", vocabulary=550, top=(0.126, 0.07, 0.044, 0.039), exponent=1.4),
        Categorical("C3", 0.039, "item", vocabulary=280000, top=(0.04, 0.022, 0.018, 0.018), exponent=0.9),
        Categorical("C4", 0.037, "item", vocabulary=83000, top=(0.058, 0.05, 0.037, 0.022)),
        Categorical("C5", vocabulary=300, top=(0.67, 0.157, 0.062, 0.033), exponent=2.2),
        Categorical("C6", 0.14, vocabulary=16, top=(0.54, 0.223, 0.135, 0.045, 0.0403, 0.0164), exponent=3.0),
        Categorical("C7", vocabulary=12000, top=(0.01, 0.009, 0.008, 0.006), exponent=1.0),
        Categorical("C8", vocabulary=600, top=(0.592, 0.167, 0.077, 0.042), exponent=2.2),
        Categorical("C9", vocabulary=3, top=(0.8844, 0.1152, 0.0004)),
        Categorical("C10", vocabulary=40000, top=(0.269, 0.009, 0.009, 0.007), exponent=1.0),
        Categorical("C11", vocabulary=5000, top=(0.021, 0.016, 0.012, 0.01), exponent=1.1),
        Categorical("C12", 0.038, "item", "C3", vocabulary=260000, top=(0.04, 0.022, 0.018, 0.018), exponent=0.9),
        Categorical("C13", vocabulary=3000, top=(0.023, 0.017, 0.013, 0.012), exponent=1.1),
        Categorical("C14", vocabulary=26, top=(0.3638, 0.3478, 0.1581, 0.0359, 0.0232), exponent=2.5),
        Categorical("C15", vocabulary=9000, top=(0.021, 0.016, 0.01, 0.01), exponent=1.1),
        Categorical("C16", 0.039, "item", "C3", vocabulary=150000, top=(0.04, 0.022, 0.018, 0.018), exponent=0.9),
        Categorical("C17", vocabulary=9, top=(0.424, 0.132, 0.128, 0.075, 0.065, 0.048, 0.045, 0.042, 0.041)),
        Categorical("C18", vocabulary=4500, top=(0.055, 0.028, 0.022, 0.021), exponent=1.3),
        Categorical("C19", 0.417, "slot", vocabulary=1800, top=(0.595, 0.039, 0.022, 0.016), exponent=1.2),
        Categorical("C20", 0.417, "slot", vocabulary=3, top=(0.374, 0.3174, 0.3086)),
        Categorical("C21", 0.039, "item", "C3", vocabulary=200000, top=(0.04, 0.022, 0.018, 0.018), exponent=0.9),
        Categorical("C22", 0.819, vocabulary=14, top=(0.513, 0.392, 0.041, 0.0314, 0.0204), exponent=3.0),
        Categorical("C23", vocabulary=15, top=(0.4475, 0.2008, 0.1108, 0.071, 0.0645, 0.0433, 0.0295), exponent=3.0),
        Categorical("C24", 0.038, "item", vocabulary=26000, top=(0.078, 0.065, 0.065, 0.052), exponent=1.1),
        Categorical("C25", 0.417, "slot", vocabulary=60, top=(0.326, 0.204, 0.102, 0.065), exponent=1.5),
        Categorical("C26", 0.418, "slot", vocabulary=60000, top=(0.083, 0.037, 0.028, 0.027)),
    ),
    base_rate=0.22,
    pairs=(("C6", "C14"), ("C17", "C23"), ("C25", "I4"), ("I9", "C14")),
    triples=(("C6", "C14", "C25"), ("C17", "C23", "I4")),
    delimiter="\t",
    header="",
)

AVAZU = LogLayout(
    name="avazu",
    columns=(
        Categorical(
            "C1", vocabulary=7, top=(0.919, 0.055, 0.022, 0.002), numbers=(1005, 1002, 1010, 1012, 1007, 1001, 1008)
        ),
        Categorical("banner_pos", vocabulary=7, top=(0.72, 0.277, 0.001), numbers=(0, 1, 7, 2, 4, 5, 3)),
        Categorical("site_id", vocabulary=4700, top=(0.361, 0.16, 0.065, 0.034), exponent=1.4),
        Categorical("site_domain", follows="site_id", vocabulary=7700, top=(0.374, 0.17, 0.075, 0.034), exponent=1.4),
        Categorical("site_category", follows="site_id", vocabulary=26, top=(0.409, 0.25, 0.197, 0.09), exponent=2.5),
        Categorical("app_id", vocabulary=8500, top=(0.64, 0.038, 0.028, 0.02), exponent=1.3),
        Categorical("app_domain", follows="app_id", vocabulary=560, top=(0.674, 0.13, 0.047, 0.03), exponent=1.8),
        Categorical("app_category", follows="app_id", vocabulary=36, top=(0.647, 0.236, 0.06, 0.03), exponent=2.5),
        Categorical("device_id", vocabulary=2700000, top=(0.825,), exponent=0.4),
        Categorical("device_ip", vocabulary=6700000, top=(0.005, 0.003, 0.003), exponent=0.6),
        Categorical("device_model", vocabulary=8250, top=(0.06, 0.035, 0.034, 0.024), exponent=1.2),
        Categorical("device_type", vocabulary=5, top=(0.923, 0.055, 0.019, 0.002, 0.001), numbers=(1, 0, 4, 5, 2)),
        Categorical("device_conn_type", vocabulary=4, top=(0.863, 0.082, 0.054, 0.001), numbers=(0, 2, 3, 5)),
        Categorical("C14", vocabulary=2600, top=(0.05, 0.035, 0.025), exponent=1.0, number_range=(375, 24100)),
        Categorical("C15", vocabulary=8, top=(0.932, 0.058, 0.008), numbers=(320, 300, 216, 728, 120, 1024, 480, 768)),
        Categorical("C16", vocabulary=9, top=(0.94, 0.045, 0.008), numbers=(50, 250, 36, 480, 90, 20, 768, 320, 1024)),
        Categorical(
            "C17", follows="C14", vocabulary=435, top=(0.11, 0.06, 0.05), exponent=1.1, number_range=(112, 2760)
        ),
        Categorical("C18", vocabulary=4, top=(0.418, 0.333, 0.17, 0.079), numbers=(0, 3, 2, 1)),
        Categorical(
            "C19", vocabulary=68, top=(0.301, 0.217, 0.08), exponent=1.2, numbers=(35, 39, 167), number_range=(33, 1960)
        ),
        Categorical(
            "C20", vocabulary=172, top=(0.468, 0.06, 0.04), exponent=1.1, numbers=(-1,), number_range=(100000, 100249)
        ),
        Categorical(
            "C21", vocabulary=60, top=(0.219, 0.124, 0.12), exponent=1.2, numbers=(23, 221, 79), number_range=(1, 256)
        ),
    ),
    base_rate=0.17,
    pairs=(("site_category", "C18"), ("C19", "C20"), ("C21", "C19")),
    triples=(("site_category", "C18", "C21"), ("C19", "C20", "C17")),
    delimiter=",",
    header="id,click,hour,C1,banner_pos,site_id,site_domain,site_category,app_id,app_domain,app_category,device_id,"
    "device_ip,device_model,device_type,device_conn_type,C14,C15,C16,C17,C18,C19,C20,C21",
    with_id_and_hour=True,
)


_THINGS = "dress shoes jacket scarf hat gloves shirt skirt coat belt boots socks jeans sweater bag watch ring umbrella"


def _words(name: str, words: str, missing: float = 0.0) -> Categorical:
    values = tuple(words.split())
    return Categorical(name, missing, vocabulary=len(values), exponent=0.5, words=values)


# Planted pairs: a word of the title with the category, and a word of the query with a word of the title.
TEXT = LogLayout(
    name="text",
    columns=(
        Integer("age", 0.1, zero=0.0, log_mean=3.5, log_std=0.4, maximum=90),
        Categorical("device", vocabulary=4, top=(0.45, 0.35, 0.15, 0.05)),
        Categorical("category", vocabulary=12, exponent=0.5),
        Categorical("shop", 0.02, vocabulary=2000, top=(0.05, 0.03), exponent=1.0),
        _words("colour", "red blue green black white brown grey yellow", 0.3),
        _words("thing", _THINGS),
        _words("praise", "new cheap elegant comfortable exclusive popular handmade classic modern warm light used"),
        _words("item", _THINGS),
        _words("offer", "sale delivery refund gift discount today tomorrow online shop outlet", 0.2),
    ),
    base_rate=0.2,
    pairs=(("praise", "category"), ("colour", "item")),
    triples=(),
    delimiter="\t",
    header="",
    texts=(("query", ("colour", "thing")), ("title", ("praise", "item", "offer"))),
)

FORMATS = {spec.name: spec for spec in (CRITEO, AVAZU, TEXT)}


def words_of(spec: LogLayout) -> tuple[str, ...]:
    """Returns the distinct words of a layout's texts."""
    return tuple(dict.fromkeys(word for column in spec.columns for word in getattr(column, "words", ())))
