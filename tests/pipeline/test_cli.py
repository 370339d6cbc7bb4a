"""What holds for every command: help, mistakes and interrupts."""

import itertools
import json
import re
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from ctrpipe.common.errors import InputError, causes
from ctrpipe.common.exit_codes import BLOCKED, FAILED, INTERRUPTED
from ctrpipe.common.interrupt import interrupts_delivered
from ctrpipe.pipeline.cli import COMMANDS, SECTIONS, main
from ctrpipe.pipeline.commands.options import repeat_for_files
from ctrpipe.pipeline.commands.run import run
from ctrpipe.pipeline.evaluation.scored_rows import write_scored
from tests.e2e.small_run import ROOT, call, one_line
from tests.pipeline.test_compare import scored
from tests.pipeline.test_report import run_left

CONTEXT = click.Context(main)
# What a command imports when it is called, and not to show its help or to refuse wrong usage.
HEAVY = "numpy pyarrow pydantic yaml rich tensorflow keras jax tfx apache_beam scipy matplotlib sklearn".split()
IMPORTED = """
import json, sys
from ctrpipe.pipeline.cli import CommandGroup, main
from ctrpipe.pipeline.commands.options import repeat_for_files
try:
    main(sys.argv[1:], prog_name="ctrpipe")
finally:
    print(json.dumps(sorted(sys.modules)))
"""


def modules_of(*arguments) -> tuple[int, set[str]]:
    """Exit code of a command in a separate process, and the modules that it imported."""
    command = [sys.executable, "-c", IMPORTED, *map(str, arguments)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return result.returncode, set(json.loads(result.stdout.splitlines()[-1]))


def test_the_commands_are_these():
    folder = ROOT / "pipeline" / "commands"
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__", "options", "prepare_options", "demo_run"}
    assert main.list_commands(CONTEXT) == sorted(COMMANDS)
    assert {name.replace("-", "_") for name in COMMANDS} == modules


def test_help_has_each_command_in_one_section_with_its_whole_first_sentence():
    assert sorted(itertools.chain(*SECTIONS.values())) == sorted(COMMANDS)
    code, output = call("--help")
    assert code == 0 and "..." not in output.partition("Start:")[2]
    for name in COMMANDS:
        [line] = re.findall(rf"^  {name} +(.*)$", output, re.M)
        first, *_ = (main.get_command(CONTEXT, name).help or "").split("\n\n")
        assert " ".join(first.split()).startswith(line), name


@pytest.mark.parametrize("arguments", [[], ["--help"], ["ctr", "canary=13"]], ids=" ".join)
def test_a_command_s_former_name_answers_with_its_new_one(arguments):
    code, output = call("label", *arguments)
    expected = "the command label has another name now; write `ctrpipe canary`, with the same options"
    assert (code, output) == (2, f"ctrpipe: {expected}\n")


def test_help_of_a_group_has_the_whole_first_sentence_of_its_commands():
    groups = {name: main.get_command(CONTEXT, name) for name in COMMANDS}
    groups = {name: group for name, group in groups.items() if isinstance(group, click.Group)}
    assert {"prepare", "bench"} <= set(groups)
    for name, group in groups.items():
        lines = call(name, "--help")[1].partition("Commands:\n")[2].splitlines()
        assert [line.split()[0] for line in lines] == sorted(group.commands)
        assert all(line.endswith(".") and not line.endswith("...") for line in lines), name


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], *([name, "--help"] for name in COMMANDS)], ids=" ".join
)
def test_help_imports_no_library_that_only_work_needs(arguments):
    code, modules = modules_of(*arguments)
    assert code == 0 and modules.isdisjoint(HEAVY)


@pytest.mark.slow
def test_comparing_and_reporting_load_no_library_that_they_do_without(tmp_path):
    slow = {"pandas", "pydantic", "scipy", "sklearn", "matplotlib.pyplot", "tensorflow", "keras", "tfx"}
    for name, noise in (("a", 0.4), ("b", 0.05)):
        write_scored(
            run_left(tmp_path / name, keeps=False) / "report_data" / "predictions.parquet", scored(noise=noise)
        )
    for arguments in (["report", tmp_path / "a"], ["compare", tmp_path / "a", tmp_path / "b"]):
        code, modules = modules_of(*arguments)
        assert code == 0 and modules.isdisjoint(slow), arguments


def test_a_configuration_and_the_readers_of_its_log_do_without_pandas():
    """A `pa.array` of a module imports pandas, which takes longer than the others together."""
    code = "import sys, ctrpipe.pipeline.run.run, ctrpipe.pipeline.draft.page; print('pandas' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout == "False\n"


def test_a_command_is_imported_when_it_is_called():
    _, modules = modules_of("report", "--help")
    assert {name for name in modules if name.startswith("ctrpipe.pipeline.commands.")} == {
        "ctrpipe.pipeline.commands.options",
        "ctrpipe.pipeline.commands.report",
    }


def words_of_commands() -> list[str]:
    """The words of each command, those of groups included: `run`, `prepare join`."""
    words = []
    for name in COMMANDS:
        command = main.get_command(CONTEXT, name)
        words += [name, *(f"{name} {part}" for part in getattr(command, "commands", ()))]
    return words


@pytest.mark.parametrize("words", words_of_commands())
def test_help_fits_80_columns_and_has_a_text_of_every_option(words):
    code, output = call(*words.split(), "--help")
    assert code == 0 and re.match(f"(?i)usage: (main|ctrpipe) {words} ", output)
    command = main
    for word in words.split():
        command = command.get_command(CONTEXT, word)
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.opts[0] in output and parameter.help, parameter.name
    assert command.help and [line for line in output.splitlines() if len(line) > 80] == []


def test_the_documents_name_every_command_model_and_exit_code():
    from ctrpipe.models.base.registry import available

    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    docs = ROOT / "docs"
    pages = {str(page.relative_to(docs)): page.read_text(encoding="utf-8") for page in docs.rglob("*.md")}
    assert [model.name for model in available() if f"`{model.name}`" not in pages["models.md"]] == []
    text_models = {model.name for model in available() if model.needs_text}
    assert {name for name in text_models if f"`{name}`" not in pages["how-to/text.md"]} == set()
    shown = re.findall("ctrpipe ([a-z-]+)", readme + "".join(pages.values()))
    assert set(shown) >= set(COMMANDS) - {"demo"} and "make demo" in readme
    codes = " ".join(readme.partition("Exit codes: ")[2].split())[:200]
    assert all(f"{code} " in codes for code in (0, BLOCKED, 2, FAILED, INTERRUPTED))


def test_usage_mistakes_are_exit_code_2_without_a_traceback(tmp_path):
    for arguments in (["walk"], ["run"], ["score", "--model", "x"], ["predict", "--rows", "0"], ["run", "--speed"]):
        result = CliRunner().invoke(main, arguments)
        assert result.exit_code == 2 and "Error: " in result.output and "Traceback" not in result.output


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["rnu", "x.yaml"], "No such command 'rnu'; did you mean run?"),
        (["train", "x.yaml"], "No such command 'train'; did you mean run?"),
        (["trainn"], "No such command 'trainn'; did you mean run?"),
        (["Score"], "No such command 'Score'; did you mean score?"),
        (["tune_serving"], "No such command 'tune_serving'; did you mean tune-serving?"),
        (["walk-on-water"], "No such command 'walk-on-water'; `ctrpipe --help` lists them"),
        (["prepare", "jion"], "No such command 'jion'. Did you mean 'join'?"),
        (["run", "--outptu", "x"], "No such option '--outptu'. Did you mean '--output'?"),
    ],
)
def test_a_mistyped_command_or_option_is_told_which_is_meant(given, said):
    answer = CliRunner().invoke(main, given)
    assert answer.exit_code == 2 and said in " ".join(answer.output.split())


@pytest.mark.parametrize("shell", [(1, 10, 11, 2, 9), (10, 11, 1, 2, 9)])  # in C, and in English, `_` and `.` aside
@pytest.mark.parametrize(
    ("given", "read"),
    [
        (("c.yaml", "--data", "DAYS", "--output", "o"), ["c.yaml", "--data", "DAYS", "--output", "o"]),
        (("--output", "o", "--data", "DAYS", "c.yaml"), ["--output", "o", "--data", "DAYS", "c.yaml"]),
        (("--data=FIRST", "REST", "c.yaml"), ["--data", "DAYS", "c.yaml"]),
        (("c.yaml", "--data", "day_2.csv", "day_1.csv"), ["c.yaml", "--data", "day_2.csv", "--data", "day_1.csv"]),
        (("c.yaml", "--data", "day_1.csv", "absent.csv"), ["c.yaml", "--data", "day_1.csv", "absent.csv"]),
        (("c.yaml", "--set", "seed=1", "day_1.csv"), ["c.yaml", "--set", "seed=1", "day_1.csv"]),
        (("c.yaml", "--data"), ["c.yaml", "--data"]),
    ],
)
def test_a_pattern_that_the_shell_has_replaced_is_read_as_the_quoted_one(given, read, shell, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("c.yaml", *(f"day_{number}.csv" for number in shell)):
        (tmp_path / name).touch()
    days = [f"day_{number}.csv" for number in shell]
    ordered = [word for number in sorted(shell) for word in ("--data", f"day_{number}.csv")]
    words = {"DAYS": days, "REST": days[1:], "--data=FIRST": [f"--data={days[0]}"]}
    command = [word for name in given for word in words.get(name, [name])]
    expected = [word for name in read for word in (ordered[1:] if name == "DAYS" else [name])]
    assert repeat_for_files(run, command) == expected


def test_a_log_that_the_shell_has_listed_is_in_the_order_of_its_numbers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for number in (2, 10):
        (tmp_path / f"day_{number}.csv").write_text("click,n\n" + f"{number % 3 % 2},{number}\n" * 30)
    assert call("init", "day_10.csv", "day_2.csv", "--output", "c.yaml")[0] == 0
    text = (tmp_path / "c.yaml").read_text()
    assert text.index("day_2.csv") < text.index("day_10.csv")


def test_mistakes_of_the_commands_that_write_files(tmp_path):
    (tmp_path / "file").touch()
    one_line(*call("generate", "--rows", 0, "--output", tmp_path / "log"), "rows should be a whole number")
    one_line(*call("generate", "--output", tmp_path / "absent" / "log"), "does not exist")
    one_line(
        *call("generate", "--interplay", 1, "--output", tmp_path / "log"),
        "--interplay applies to --format kddcup2012, not of criteo",
    )
    one_line(*call("demo", "--output", tmp_path / "file"), "a file is in the way of the output folder")
    one_line(
        *call("demo", "--output", tmp_path / "o", "--config", tmp_path / "absent"), "cannot read the configuration"
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]


def raising(monkeypatch, error: BaseException, *command: str) -> tuple[int, str]:
    def fail(**arguments):
        raise error

    command = command or ("report", "anywhere")
    monkeypatch.setattr(main.get_command(CONTEXT, command[0]), "callback", fail)
    return call(*command)


def test_an_input_error_is_one_line_and_exit_code_2(monkeypatch):
    assert raising(monkeypatch, InputError("what, where")) == (2, "ctrpipe: what, where\n")
    secret = InputError("http://ann:s3cret@host: no answer")
    assert raising(monkeypatch, secret) == (2, "ctrpipe: http://***@host: no answer\n")
    quoted = InputError("the header is é\x1b[2J\n\t")
    assert raising(monkeypatch, quoted) == (2, "ctrpipe: the header is é\\x1b[2J\\n\\t\n")


def test_an_interrupt_is_one_line_and_exit_code_130(monkeypatch):
    expected = (130, "ctrpipe: interrupted\n")
    assert raising(monkeypatch, KeyboardInterrupt()) == expected
    wrapped = RuntimeError("KeyboardInterrupt [while running 'ParDo']")  # as Beam hands it on
    wrapped.__context__ = KeyboardInterrupt()
    assert raising(monkeypatch, wrapped) == expected


def test_an_interrupted_command_that_would_resume_says_so(monkeypatch):
    expected = (130, "ctrpipe: interrupted; repeat the command to continue from here\n")
    assert raising(monkeypatch, KeyboardInterrupt(), "demo") == expected


INTERRUPTED_WORK = """
import gc, importlib.abc, signal, sys, time
from ctrpipe.pipeline.cli import CommandGroup, main
from ctrpipe.pipeline.commands.options import repeat_for_files
from ctrpipe.common.interrupt import interrupt

_, number, ignored, place = sys.argv

def send():
    signal.raise_signal(signal.Signals[number])

def callback(phase, details):  # JAX has one
    gc.callbacks.remove(callback)
    send()

def in_a_callback_of_the_garbage_collector():
    gc.callbacks.append(callback)
    gc.collect()

def where_any_error_is_an_answer():
    try:
        send()
    except BaseException:
        pass

class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "copy":
            send()

def in_a_native_module_that_initialises_itself():
    sys.modules.pop("copy", None)
    sys.meta_path.insert(0, Finder())
    try:
        import _elementtree  # it imports copy
    finally:
        print("_elementtree" in sys.modules, file=sys.stderr, flush=True)

def where_tensorflow_asks_python_for_something():
    from ctrpipe.common.libraries import load_tensorflow

    load_tensorflow()
    import tensorflow as tf

    def convert(value, dtype=None, name=None, as_ref=False):
        send()
        print("converted", file=sys.stderr, flush=True)
        return tf.constant(1.0)

    class Value:
        pass

    tf.register_tensor_conversion_function(Value, convert)
    traced = tf.function(lambda: tf.add(Value(), 1.0), autograph=False)
    traced()
    print("and gone on", file=sys.stderr, flush=True)

def in_a_slow_end():
    try:
        send()
    finally:
        time.sleep(2)
        print("ended", file=sys.stderr, flush=True)

@main.command()
def work():
    globals()[place]()
    time.sleep(20)

if ignored:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, interrupt)
main(["work"])
"""


# Where SIGINT is ignored it is a server's SIGTERM.
@pytest.mark.parametrize(
    ("place", "number", "ignored", "said"),
    [
        ("in_a_callback_of_the_garbage_collector", "SIGINT", "", ""),
        ("in_a_callback_of_the_garbage_collector", "SIGTERM", "ignored", ""),
        ("where_any_error_is_an_answer", "SIGINT", "", ""),
        ("in_a_native_module_that_initialises_itself", "SIGINT", "", "True\n"),
        ("where_tensorflow_asks_python_for_something", "SIGINT", "", "converted\n"),
        ("in_a_slow_end", "SIGINT", "", "ended\n"),
    ],
)
@pytest.mark.slow
def test_an_interrupt_arrives_once_wherever_python_is(place, number, ignored, said):
    command = [sys.executable, "-c", INTERRUPTED_WORK, number, ignored, place]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.stderr == said + "ctrpipe: interrupted\n"
    assert result.returncode == INTERRUPTED


def test_an_error_that_python_ignores_is_still_shown(monkeypatch):
    class Finalized:
        def __del__(self):
            raise ValueError("not an interrupt")

    shown = []
    monkeypatch.setattr(sys, "unraisablehook", lambda found: shown.append(str(found.exc_value)))
    with interrupts_delivered():
        Finalized()
    assert shown == ["not an interrupt"]


def test_an_error_that_is_its_own_cause_is_said(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    ring = RuntimeError("a bug")
    ring.__cause__ = ring
    code, output = raising(monkeypatch, ring)
    assert code == FAILED and output.startswith("ctrpipe: RuntimeError: a bug; this is a defect")


def test_causes_come_nearest_first_and_end():
    first, second, third = KeyError("1"), ValueError("2"), OSError("3")
    first.__context__, second.__cause__, third.__context__ = second, third, first
    assert list(causes(first)) == [first, second, third]
    assert list(causes(None)) == []
