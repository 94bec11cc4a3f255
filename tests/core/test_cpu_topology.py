"""How many threads are started by default, on made-up machines: the kernel's folder /sys/devices as they show it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from core_testing import testing
from dualar import _core


def write_cpu(
    devices: Path, cpu: int, *, core: int, package: int, capacity: int | None = None, together: str | None = None
) -> None:
    """together: the list of the core's CPUs, which old kernels do not have."""
    folder = devices / "system" / "cpu" / f"cpu{cpu}"
    (folder / "topology").mkdir(parents=True)
    (folder / "topology" / "core_id").write_text(f"{core}\n")
    (folder / "topology" / "physical_package_id").write_text(f"{package}\n")
    if together is not None:
        (folder / "topology" / "core_cpus_list").write_text(f"{together}\n")
    if capacity is not None:
        (folder / "cpu_capacity").write_text(f"{capacity}\n")


def pi_5(devices: Path) -> None:
    """Four Cortex-A76."""
    for cpu in range(4):
        write_cpu(devices, cpu, core=cpu, package=0, capacity=1024, together=str(cpu))


def snapdragon_tablet(devices: Path) -> None:
    """Four little cores, three big and a prime one. Numbers of cores begin anew in each cluster, the package is -1."""
    for cpu, (core, capacity) in enumerate([*((c, 325) for c in range(4)), (0, 828), (1, 828), (2, 828), (0, 1024)]):
        write_cpu(devices, cpu, core=core, package=-1, capacity=capacity, together=str(cpu))


def two_socket_server(devices: Path) -> None:
    """Two packages of eight cores with two hyper-threads each; numbers of cores repeat in the second package."""
    for cpu in range(32):
        core = cpu % 16
        write_cpu(devices, cpu, core=core % 8, package=core // 8, together=f"{core},{core + 16}")


def old_server(devices: Path) -> None:
    """The same on a kernel without lists of a core's CPUs."""
    for cpu in range(32):
        write_cpu(devices, cpu, core=cpu % 16 % 8, package=cpu % 16 // 8)


def hybrid_laptop(devices: Path) -> None:
    """Two performance cores with two hyper-threads each, and eight efficiency cores."""
    for cpu in range(4):
        write_cpu(devices, cpu, core=cpu // 2 * 4, package=0, together=f"{cpu // 2 * 2}-{cpu // 2 * 2 + 1}")
    for cpu in range(4, 12):
        write_cpu(devices, cpu, core=cpu + 4, package=0, together=str(cpu))
    for name, cpus in (("cpu_core", "0-3"), ("cpu_atom", "4-11")):
        (devices / name).mkdir()
        (devices / name / "cpus").write_text(f"{cpus}\n")


def silent(devices: Path) -> None:
    """A container that shows nothing of it."""


@pytest.mark.parametrize(
    ("machine", "cpus", "threads"),
    [
        (pi_5, range(4), 4),
        (pi_5, [2, 3], 2),
        (snapdragon_tablet, range(8), 4),
        (snapdragon_tablet, range(4), 4),  # an app in the background, which gets the little ones alone
        (snapdragon_tablet, [0, 1, 7], 1),
        (two_socket_server, range(32), 16),
        (two_socket_server, [0, 16], 1),  # one core
        (two_socket_server, [0, 8], 2),  # core 0 of both packages
        (old_server, range(32), 16),
        (hybrid_laptop, range(12), 2),
        (hybrid_laptop, range(4, 12), 8),
        (silent, range(6), 6),
        (silent, [], 1),
    ],
)
def test_threads_are_the_fast_cores(
    tmp_path: Path, machine: Callable[[Path], None], cpus: Iterable[int], threads: int
) -> None:
    machine(tmp_path)
    assert testing.fast_cores(list(cpus), str(tmp_path)) == threads


def test_damaged_files_are_as_none(tmp_path: Path) -> None:
    pi_5(tmp_path)
    for path in tmp_path.rglob("*"):
        if path.is_file():
            path.write_text("x-,\n")
    assert 1 <= testing.fast_cores([0, 1, 2, 3], str(tmp_path)) <= 4


def test_default_of_this_machine() -> None:
    assert 1 <= _core.default_threads() <= _core.usable_cpus()
