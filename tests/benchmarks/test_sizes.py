"""`python -m benchmarks.sizes`: what it counts, on environments made by hand."""

import pathlib
import sys

from benchmarks import sizes


def packages(folder: pathlib.Path, **files: int) -> pathlib.Path:
    for name, size in files.items():
        package = folder / "lib" / "python3" / "site-packages" / name
        package.mkdir(parents=True)
        (package / "code.py").write_bytes(b"#" * size)
    return folder


def test_it_counts_files_once_and_names_the_largest_packages_that_only_the_base_has(tmp_path):
    alone = packages(tmp_path / "alone", tensorflow=1000)
    base = packages(tmp_path / "base", tensorflow=1000, **{f"p{number}": 10 * number for number in range(12)})
    (alone / "link").symlink_to(alone / "lib")
    assert sizes.bytes_of(alone) == 1000 + len(str(alone / "lib")) and sizes.bytes_of(base) == 1000 + 660
    added = sizes.largest(base, alone)
    assert list(added.items())[:2] == [("p11", 110), ("p10", 100)] and len(added) == sizes.SHOWN


def test_the_time_of_help_is_the_least_of_several_calls(tmp_path):
    program = tmp_path / "program"
    program.write_text(f"#!{sys.executable}\nimport sys, time\nassert sys.argv[1:] == ['--help']\ntime.sleep(0.05)\n")
    program.chmod(0o755)
    found = sizes.help_time(program, 2)
    assert 0.05 < found.wall < 5 and 0 < found.cpu < found.wall + 1


def test_tensorflow_alone_is_what_the_base_asks_for():
    assert sizes.tensorflow().startswith("tensorflow>=2")
