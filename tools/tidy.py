#!/usr/bin/env python3
"""clang-tidy of units of build/release, one process each. A unit that has passed is looked at again only when its text,
that of a file that it includes, its command line, the checks or clang-tidy has changed: what has passed is remembered in
the compiler cache's directory, for other clones too.
  tools/tidy.py JOBS UNIT..."""

import concurrent.futures
import hashlib
import json
import pathlib
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
COMMANDS = ROOT / "build/release/compile_commands.json"
TIDY = ["clang-tidy", "-p", COMMANDS.parent, "--quiet", "--checks=-bugprone-suspicious-include"]


def output_of(*command, **how):
    return subprocess.run(command, check=True, capture_output=True, **how).stdout


def digest(command):
    """Of all that clang-tidy sees, without this clone's path."""
    words = shlex.split(command["command"])
    places = {"-o", "-MF", "-MT"}
    words = [w for i, w in enumerate(words) if w not in places | {"-c", "-MD"} and words[i - 1] not in places]
    rule = output_of(*words, "-M", cwd=command["directory"]).decode()
    files = set(rule.split(": ", 1)[1].replace("\\\n", " ").split())
    seen = hashlib.sha256(output_of("clang-tidy", "--version") + (ROOT / ".clang-tidy").read_bytes())
    seen.update(repr((TIDY[3:], words)).replace(str(ROOT), "").encode())
    for file in sorted(files, key=lambda file: file.replace(str(ROOT), "")):
        text = (pathlib.Path(command["directory"]) / file).read_bytes()
        seen.update(hashlib.sha256(text.replace(str(ROOT).encode(), b"")).digest())
    return seen.hexdigest()


def main():
    jobs, units = int(sys.argv[1]), sys.argv[2:]
    commands = {entry["file"]: entry for entry in json.loads(COMMANDS.read_text())}
    passed = pathlib.Path(output_of("ccache", "--get-config", "cache_dir").decode().strip()) / "clang-tidy"
    passed.mkdir(parents=True, exist_ok=True)

    def look(unit):
        mark = passed / digest(commands[unit])
        if mark.exists():
            return True, ""
        done = subprocess.run([*TIDY, unit], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode == 0:
            mark.touch()
        return done.returncode == 0, done.stdout

    failed = 0
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for good, text in pool.map(look, units):
            failed += not good
            if not good:
                print(text, end="", flush=True)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
