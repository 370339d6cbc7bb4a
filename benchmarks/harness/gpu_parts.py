"""The parts of `python -m benchmarks.gpu` in order of priority; each part is another benchmark."""

import dataclasses
import sys
from collections.abc import Mapping, Sequence

from benchmarks.harness.command import cores
from benchmarks.harness.ours import BACKENDS
from benchmarks.harness.settings import MODELS, OF_ZOO, TARGETS_OF_ZOO

PEERS = ("fuxictr", "recbole")
# Minimum samples/s over FuxiCTR's on the same GPU.
BARS = dict.fromkeys(MODELS, 1.5) | TARGETS_OF_ZOO | {"xdeepfm": 3.0}
TREES = ("lightgbm",)  # without steps
FIRST = ("xdeepfm", "dcn_v2", "deepfm", "autoint", "fm")  # one of each kind of interaction
LARGE_BATCH = ("xdeepfm", "dcn_v2", "deepfm")
FIRST_TEXTS, MORE_TEXTS = ("bert4ctr", "text_only"), ("shallow_interaction_n", "numbert")
TRAIN, LARGE = "train_", "large_batch_"  # name prefixes of the training parts
# Measured in turn in the same processes, because starting them takes as long as measuring.
PRECISIONS = ("--precision", "float32", "--precision", "mixed_bfloat16", "--peer-precision", "same")


@dataclasses.dataclass(frozen=True)
class Usable:
    """The backends of ours and the peers that can use the device, and a checkout of FuxiCTR for its model zoo."""

    backends: tuple[str, ...] = BACKENDS
    peers: tuple[str, ...] = PEERS
    zoo: str = ""


@dataclasses.dataclass(frozen=True)
class Sizes:
    """The sizes of the parts, and the minutes that a part needs.

    Attributes:
        shape: Options of benchmarks.train and benchmarks.tables for fields and width.
        batch, large_batch: Rows in a step.
        ids: Option for the ids of a field in training.
        rounds: Options for the number and duration of the rounds.
        rows: Rows of the large tables.
        texts: Options for training models with a text, whose rows take far longer.
        minutes: Minutes that a part needs at least, including start and compilation.
    """

    shape: tuple[str, ...] = ()
    batch: int = 4096
    large_batch: int = 32768
    ids: tuple[str, ...] = ()
    rounds: tuple[str, ...] = ("--rounds", "3", "--seconds", "0.5")
    rows: int = 100_000_000
    peak: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    inference: tuple[str, ...] = ("--rows", "1,10,100,1000,10000")
    agreement: tuple[str, ...] = ("--workers", "6")
    precision: tuple[str, ...] = ("--models", "dcn_v2", "--precisions", "mixed_bfloat16")
    reader: tuple[str, ...] = ("--models", "lr,dcn_v2,xdeepfm", "--rows", "4000000")
    text: tuple[str, ...] = ()
    texts: tuple[str, ...] = ("--batch", "256")
    minutes: float = 0.75


FULL = Sizes()
SMALL = Sizes(
    shape=("--fields", "6", "--dim", "8"),
    batch=64,
    large_batch=128,
    ids=("--ids", "50"),
    rounds=("--rounds", "2", "--steps", "3"),
    rows=20_000,
    peak=("--size", "256", "--seconds", "0.1"),
    calls=("--models", "dcn_v2", "--rows", "1,10", "--seconds", "0.05", "--ids", "50"),
    inference=("--rows", "1,10", "--rounds", "2", "--seconds", "0.05"),
    agreement=("--models", "deepfm,din", "--rows", "16", "--ids", "50"),
    reader=("--models", "lr", "--rows", "2000", "--rounds", "1"),
    precision=("--models", "deepfm", "--seeds", "2", "--rows", "2000", "--epochs", "1", "--batch", "256", "--dim", "4"),
    text=("--layers", "1", "--width", "64", "--batch", "2", "--repeats", "3", "--features", "20"),
    texts=("--batch", "2", "--fields", "6"),
    minutes=0.3,
)


@dataclasses.dataclass(frozen=True)
class Part:
    """A benchmark that runs in one process.

    Attributes:
        name: Its name for --only, and in the results.
        command: The command, without --output.
        minutes: The part is not started if fewer minutes are left.
        backends: The backends of ours that it needs.
        variables: Additional environment variables.
    """

    name: str
    command: tuple[str, ...]
    minutes: float
    backends: tuple[str, ...] = ()
    variables: Mapping[str, str] = dataclasses.field(default_factory=dict)


def parts(sizes: Sizes, device: str, devices: int = 1, usable: Usable | None = None) -> list[Part]:
    """Returns all parts.

    Args:
        sizes: Their sizes.
        device: The device to compute on.
        devices: Number of GPUs.
        usable: The usable backends and peers; None: all.
    """
    usable = usable or Usable()

    def part(name: str, module: str, *options: str, backends: tuple[str, ...] = (), on: str = device) -> Part:
        command = (sys.executable, "-m", f"benchmarks.{module}", *options, "--device", on)
        return Part(name, command, sizes.minutes, backends)

    ours = [word for backend in usable.backends for word in ("--backend", backend)]
    batch = ("--batch", str(sizes.batch))

    def train(name: str, model: str, against: Sequence[str], *options: str) -> Part:
        beside = ("--models", model, "--against", ",".join(against) or "none")
        return part(name, "train", *ours, "--xla", "--flops", *beside, *PRECISIONS, *options, *sizes.rounds)

    def beside_peers(model: str) -> Part:
        against, of_zoo = usable.peers, ()
        if usable.zoo and model in OF_ZOO:
            against, of_zoo = ("fuxictr",), ("--fuxictr", usable.zoo)
        return train(f"{TRAIN}{model}", model, against, *of_zoo, *batch, *sizes.shape, *sizes.ids)

    def in_large_batches(model: str) -> Part:
        against = [peer for peer in usable.peers if peer == "fuxictr"]
        larger = ("--batch", str(sizes.large_batch))
        return train(f"{LARGE}{model}", model, against, *larger, *sizes.shape, *sizes.ids)

    def of_text(model: str) -> Part:
        return train(f"{TRAIN}{model}", model, (), *sizes.texts)

    def tables(backend: str) -> Part:
        size = ("--large", str(sizes.rows), "--small", str(sizes.rows // 1000), "--no-dense", "--model", "mlp")
        options = ("--backend", backend, *size, *batch, *sizes.shape, *sizes.rounds)
        return part(f"lazy_tables_{backend}", "tables", *options, backends=(backend,))

    def inference(name: str, on: str) -> Part:
        return part(name, "floor", "--only", "+ XLA", *sizes.inference, backends=("tensorflow",), on=on)

    def on_one_backend(name: str, *options: str) -> Part:
        backend = next(iter(usable.backends), BACKENDS[0])
        one = part(name, name, *options, backends=(backend,))
        return dataclasses.replace(one, variables={"KERAS_BACKEND": backend})

    counts = ",".join(str(2**power) for power in range(devices.bit_length()))
    shared = ("--rows", str(sizes.rows), "--devices", counts, "--optimizer", "lazy_adam", *batch, *sizes.shape)
    beside = [inference("inference_on_cpu", "cpu")] if device == "gpu" else []
    return [
        part("peak", "peak", *ours, *sizes.peak),
        *map(beside_peers, FIRST),
        part("calls", "calls", *ours, *sizes.calls),
        inference("inference", device),
        *beside,
        *map(in_large_batches, LARGE_BATCH),
        *map(tables, reversed(BACKENDS)),
        part("sharded_tables", "sharded_tables", *shared, "--rounds", "3", "--steps", "20", backends=("jax",)),
        on_one_backend("precision", *sizes.precision),
        on_one_backend("reader", *sizes.reader, "--packed-alone", "--threads", str(cores()), *batch),
        part("agreement", "agreement", *sizes.agreement, *sizes.shape, backends=("jax",)),
        part("text_cost", "text_cost", *sizes.text, backends=("tensorflow",)),
        *map(of_text, FIRST_TEXTS),
        *(beside_peers(model) for model in MODELS if model not in (*FIRST, *TREES)),
        *map(of_text, MORE_TEXTS),
    ]
