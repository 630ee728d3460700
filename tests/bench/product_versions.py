#!/usr/bin/env python3
"""Compares versions of the CPU's matrix product and oneDNN's sgemm, all in one process, called in turns on the same
operands: the ratios hold on a machine that others use, too, and whether the versions have equal bits is shown as well.
Needs a configured build/release and libdnnl-dev.

    tests/bench/product_versions.py old=HEAD~3 new=. [--rows 1024] [--rounds 15] [--type fp32|bf16|native]
                                    [--set avx512|avx2] [--processors 0] [--define new=NAME=VALUE ...]

A version is NAME=REVISION of this repository or NAME=FOLDER (`.`: the working tree). For steady ratios beside other
work run it under `chrt -f 20`, with `sysctl kernel.sched_rt_runtime_us=-1`: with Linux's default such a process pauses
for 50 ms in each second, and a product of 4,096 rows takes 100 to 300 ms.
"""
import argparse
import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build/release"


def flags():
    """What the build compiles gemm.cc with, but for paths."""
    for entry in json.loads((BUILD / "compile_commands.json").read_text()):
        if entry["file"] == str(ROOT / "kernels/cpu/gemm.cc"):
            words = shlex.split(entry["command"])
            return [w for w in words if w.startswith(("-O", "-f", "-m", "-D", "-std")) and "prefix-map" not in w]
    sys.exit("build/release is not configured: cmake --preset release")


def sources(place, into):
    """The folder of a version's sources."""
    if pathlib.Path(place).is_dir():
        return pathlib.Path(place).resolve()
    into.mkdir()
    archive = subprocess.run(["git", "-C", str(ROOT), "archive", place, "kernels", "framework/base"], check=True,
                             stdout=subprocess.PIPE).stdout
    subprocess.run(["tar", "-x", "-C", str(into)], input=archive, check=True)
    return into


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("versions", nargs="+", metavar="NAME=REVISION|FOLDER")
    parser.add_argument("--rows", default="1024")
    parser.add_argument("--rounds", default="15")
    parser.add_argument("--type", default="fp32", choices=["fp32", "bf16", "native"])
    parser.add_argument("--set", default="avx512", choices=["avx512", "avx2"])
    parser.add_argument("--processors", default="0", help="as taskset -c takes them")
    parser.add_argument("--define", action="append", default=[], metavar="NAME=MACRO[=VALUE]")
    args = parser.parse_args()
    versions = [v.split("=", 1) for v in args.versions]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        objects = []
        for name, place in versions:
            defines = [f"-D{d.split('=', 1)[1]}" for d in args.define if d.split("=", 1)[0] == name]
            objects.append(folder / f"{name}.o")
            subprocess.run(["g++", *flags(), "-ffunction-sections", f"-Dholdfast={name}_namespace", *defines,
                            f"-DHOLDFAST_VERSION=version_{name}", f"-I{sources(place, folder / name)}", f"-I{ROOT}", "-c",
                            str(ROOT / "tests/bench/product_version.cc"), "-o", str(objects[-1])], check=True)
        (folder / "versions.inc").write_text("".join(f"HOLDFAST_DECLARE({name}, version_{name})\n" for name, _ in versions))
        program = folder / "product_versions"
        subprocess.run(["g++", *flags(), f"-I{ROOT}", f"-I{folder}", str(ROOT / "tests/bench/product_versions.cc"),
                        *(str(ROOT / f"framework/base/{f}.cc") for f in ("thread_pool", "aligned_memory")),
                        *map(str, objects), "-Wl,--gc-sections", "-lhwy", "-ldnnl", "-pthread", "-o", str(program)],
                       check=True)
        environment = dict(os.environ)
        if args.set == "avx2":
            environment["ONEDNN_MAX_CPU_ISA"] = environment["DNNL_MAX_CPU_ISA"] = "AVX2"
        for rows in args.rows.split(","):
            subprocess.run(["taskset", "-c", args.processors, str(program), args.rounds, rows, args.type, args.set],
                           check=True, env=environment)


if __name__ == "__main__":
    main()
