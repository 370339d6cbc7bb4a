"""The parts of `python -m benchmarks.gpu`, each another benchmark, in the order of what they are worth."""

import dataclasses
import sys
from collections.abc import Sequence

from benchmarks.harness.ours import BACKENDS
from benchmarks.harness.settings import MODELS

PEERS = ("fuxictr", "recbole")
# Samples/s over FuxiCTR's on the same GPU.
BARS = dict.fromkeys(MODELS, 1.5) | {"xdeepfm": 3.0}
FIRST = ("xdeepfm", "dcn_v2", "deepfm", "autoint", "fm")  # one of each kind of interaction
LOW_PRECISION = ("xdeepfm", "dcn_v2", "deepfm")
TRAIN, BFLOAT16 = "train_", "bfloat16"  # how the names of parts begin that train
ALONE, IN_BFLOAT16 = ("--against", "none"), ("--precision", "mixed_bfloat16")


@dataclasses.dataclass(frozen=True)
class Usable:
    """What the device can be used by: our backends, and the peers."""

    backends: tuple[str, ...] = BACKENDS
    peers: tuple[str, ...] = PEERS


@dataclasses.dataclass(frozen=True)
class Sizes:
    """The sizes of the parts, and the minutes without which none starts.

    Attributes:
        shape: Options of benchmarks.train and benchmarks.tables for fields, width and batch.
        ids: Ids of a field in training.
        rounds: Options of how often and how long.
        rows: Of the large tables.
        texts: Models of texts that are trained, and the options of their data: a row of theirs is as long as a text.
        minutes: What a part needs at least, start and compilation included.
    """

    shape: tuple[str, ...] = ("--batch", "4096")
    ids: tuple[str, ...] = ()
    rounds: tuple[str, ...] = ("--rounds", "3", "--seconds", "1")
    rows: int = 100_000_000
    peak: tuple[str, ...] = ()
    calls: tuple[str, ...] = ("--rows", "1,10,100,1000,10000")
    precision: tuple[str, ...] = ()
    text: tuple[str, ...] = ()
    texts: tuple[str, ...] = ("--models", "text_only,shallow_interaction_n,bert4ctr,numbert", "--batch", "256")
    minutes: float = 1.0


FULL = Sizes()
SMALL = Sizes(
    shape=("--batch", "64", "--fields", "6", "--dim", "8"),
    ids=("--ids", "50"),
    rounds=("--rounds", "2", "--steps", "3"),
    rows=20_000,
    peak=("--size", "256", "--seconds", "0.1"),
    calls=("--rows", "1,10", "--rounds", "2", "--seconds", "0.05"),
    precision=("--models", "deepfm", "--seeds", "2", "--rows", "2000", "--epochs", "1", "--batch", "256", "--dim", "4"),
    text=("--layers", "1", "--width", "64", "--batch", "2", "--repeats", "3", "--features", "20"),
    texts=("--models", "bert4ctr", "--batch", "2", "--fields", "6"),
    minutes=0.3,
)


@dataclasses.dataclass(frozen=True)
class Part:
    """A benchmark that one process runs.

    Attributes:
        name: Its name for --only, and in the results.
        command: What is run, without --output.
        minutes: Without so many left it does not start.
        backends: Those of ours that it needs.
    """

    name: str
    command: tuple[str, ...]
    minutes: float
    backends: tuple[str, ...] = ()


def parts(sizes: Sizes, device: str, devices: int = 1, usable: Usable | None = None) -> list[Part]:
    """Returns all parts.

    Args:
        sizes: Their sizes.
        device: What computes.
        devices: How many GPUs there are.
        usable: Which of ours and of the peers are run; all of them where it is not known.
    """
    usable = usable or Usable()

    def part(name: str, module: str, *options: str, backends: tuple[str, ...] = (), on: str = device) -> Part:
        command = (sys.executable, "-m", f"benchmarks.{module}", *options, "--device", on)
        return Part(name, command, sizes.minutes, backends)

    def train(name: str, *options: str) -> Part:
        backends = [word for backend in usable.backends for word in ("--backend", backend)]
        return part(name, "train", *backends, "--xla", "--flops", *options, *sizes.rounds)

    def train_rows(name: str, models: Sequence[str], *options: str) -> Part:
        return train(name, "--models", ",".join(models), *options, *sizes.shape, *sizes.ids)

    def beside_peers(model: str) -> Part:
        return train_rows(f"{TRAIN}{model}", [model], "--against", ",".join(usable.peers) or "none")

    def tables(backend: str) -> Part:
        size = ("--large", str(sizes.rows), "--small", str(sizes.rows // 1000), "--no-dense", "--model", "mlp")
        options = ("--backend", backend, *size, *sizes.shape, *sizes.rounds)
        return part(f"lazy_tables_{backend}", "tables", *options, backends=(backend,))

    def inference(name: str, on: str) -> Part:
        return part(name, "floor", "--only", "+ XLA", *sizes.calls, backends=("tensorflow",), on=on)

    counts = ",".join(str(2**power) for power in range(devices.bit_length()))
    shared = ("--rows", str(sizes.rows), "--devices", counts, "--optimizer", "lazy_adam", *sizes.shape)
    beside = [inference("inference_on_cpu", "cpu")] if device == "gpu" else []
    return [
        part("peak", "peak", *[word for one in usable.backends for word in ("--backend", one)], *sizes.peak),
        *map(beside_peers, FIRST),
        inference("inference", device),
        *beside,
        part("precision", "precision", *sizes.precision, backends=("tensorflow",)),
        part("text_cost", "text_cost", *sizes.text, backends=("tensorflow",)),
        *map(tables, BACKENDS),
        part("sharded_tables", "sharded_tables", *shared, "--rounds", "3", "--steps", "20", backends=("jax",)),
        train_rows(BFLOAT16, LOW_PRECISION, *ALONE, *IN_BFLOAT16),
        *(beside_peers(model) for model in MODELS if model not in FIRST),
        train(f"{TRAIN}texts", *ALONE, *sizes.texts),
        train(f"{BFLOAT16}_texts", *ALONE, *IN_BFLOAT16, *sizes.texts),
    ]
