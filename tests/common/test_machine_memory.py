import os

import pytest

from ctrpipe.common.machine_memory import memory_limit, resident_bytes

MACHINE = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def limit(folder, own, **files):
    for name, text in files.items():
        file = folder / name.replace("__", "/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (folder / "own").write_text(own)
    return memory_limit(folder, folder / "own")


@pytest.mark.parametrize(
    ("own", "files", "expected"),
    [
        ("0::/\n", {}, MACHINE),
        ("0::/\n", {"memory.max": "max\n"}, MACHINE),
        ("0::/\n", {"memory.max": "1000000\n"}, 1_000_000),  # a container of its own namespace
        ("0::/a/b\n", {"a/b/memory.max": "max\n", "a/memory.max": "7000000\n"}, 7_000_000),  # a group above it
        ("0::/a/b\n", {"a/b/memory.max": "3000000\n", "a/memory.max": "7000000\n"}, 3_000_000),
        ("4:memory:/pod/x\n0::/\n", {"memory/pod/x/memory.limit_in_bytes": "5000000\n"}, 5_000_000),
        ("4:memory:/pod/x\n", {"memory/memory.limit_in_bytes": "6000000\n"}, 6_000_000),  # mounted from the group on
        ("4:cpu,memory:/pod/x\n", {"memory/pod/memory.limit_in_bytes": "8000000\n"}, 8_000_000),
        ("4:memory:/\n", {"memory/memory.limit_in_bytes": "9223372036854771712\n"}, MACHINE),  # version 1's "none"
        ("3:cpu:/x\n", {"x/memory.max": "9000000\n"}, MACHINE),  # another controller's group
        ("4:memory:/\n0::/u\n", {"unified/u/memory.max": "4000000\n"}, 4_000_000),  # both versions
    ],
)
def test_the_limit_is_the_smallest_of_the_groups_and_the_machine(tmp_path, own, files, expected):
    assert limit(tmp_path, own, **files) == expected


def test_a_system_without_control_groups_has_the_machines_memory(tmp_path):
    assert memory_limit(tmp_path / "none", tmp_path / "neither") == MACHINE


def test_resident_bytes_grow_with_what_is_allocated():
    before = resident_bytes()
    block = bytearray(os.urandom(1)) * (256 << 20)
    assert resident_bytes() - before > 192 << 20  # meanwhile other threads of a test process give memory back
    del block
