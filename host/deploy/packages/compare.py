"""Compares the CPU time per request of two programs, by turns.

    python3 host/deploy/packages/compare.py target/dist/annex target/dist/ordered/annex
"""

import os
import statistics
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import bolt

ROUNDS = 3
WARM_UP, REQUESTS = 2_000, 8_000


def seconds(process: int) -> float:
    """The CPU time of a process so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def microseconds(program: Path, config: str) -> float:
    """The CPU time of a request to a program that has just been started and warmed up."""
    with TemporaryDirectory() as folder, bolt.served(program, config, Path(folder)) as server:
        bolt.call(server.port, WARM_UP)
        before = seconds(server.process)
        bolt.call(server.port, REQUESTS)
        return (seconds(server.process) - before) / REQUESTS * 1e6


def main() -> None:
    programs = [Path(program).absolute() for program in sys.argv[1:3]]
    for name, config in (("an instance for each turn", bolt.EXAMPLE), ("kept instances", bolt.KEPT)):
        rounds = [[microseconds(program, config) for program in programs] for _ in range(ROUNDS)]
        first, second = (statistics.median(times) for times in zip(*rounds))
        print(f"{name}: {first:.0f} and {second:.0f} µs, ratio {second / first:.2f}", flush=True)


if __name__ == "__main__":
    main()
