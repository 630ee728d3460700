#!/usr/bin/env python3
"""Plants the bugs of tests/mutation/*/*.patch one at a time and says which of them the tests see.

    tests/mutation/run.py                        # all of them: an hour or two
    tests/mutation/run.py --room elastic/control --name '*claim*'
    tests/mutation/run.py --list                 # what there is
    tests/mutation/run.py --check                # builds nothing: does every patch still apply? A second; part of tools/lint.sh

Each patch is applied to a copy of the working tree (build/mutation/tree), the suites it names are built there and run
until one fails, and it is taken back. The working tree itself is only read. A patch is
  killed            a suite failed, crashed, or took ten times as long as without the patch
  survived          all suites named passed: a test is missing, or the patch changes nothing that matters
  does not build    not a bug that could be made
  does not apply    its lines are not there, or not there exactly once: the patch has to be made anew
The exit code is 0 only if everything chosen was killed. Results are kept in build/mutation/results.json; --resume leaves
out what was killed there.
"""
import argparse
import contextlib
import dataclasses
import fnmatch
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SCRATCH = ROOT / "build" / "mutation"
TREE = SCRATCH / "tree"
PRESET = "dev"  # one object file for each source: the least to be built again
LEAST_TIMEOUT_SECONDS = 120
NOT_BUILT, FAILED = 200, 201  # exit codes of a script


class PatchError(Exception):
    pass


@dataclasses.dataclass
class Hunk:
    path: str
    old: str
    new: str


@dataclasses.dataclass
class Patch:
    name: str  # room/file name
    what: str
    room: str
    suites: list
    hunks: list

    @staticmethod
    def read(file):
        text = file.read_text()
        header, _, diff = text.partition("--- a/")
        fields = dict(line.split(": ", 1) for line in header.splitlines() if ": " in line)
        missing = {"what", "room", "suites"} - fields.keys()
        if missing:
            raise PatchError(f"{file}: no line \"{missing.pop()}: ...\"")
        name = f"{fields['room']}/{file.stem}"
        if file.parent.name != fields["room"].replace("/", "_"):
            raise PatchError(f"{file}: the room is {fields['room']}, so its folder is {fields['room'].replace('/', '_')}")
        return Patch(name, fields["what"], fields["room"], fields["suites"].split(), Patch.hunks_of("--- a/" + diff))

    @staticmethod
    def hunks_of(diff):
        hunks, path = [], None
        for line in diff.splitlines():
            if line.startswith("--- a/"):
                continue
            if line.startswith("+++ b/"):
                path = line[len("+++ b/"):]
            elif line.startswith("@@"):
                hunks.append(Hunk(path, "", ""))
            elif line[:1] in " -+" and hunks:
                if line[:1] != "+":
                    hunks[-1].old += line[1:] + "\n"
                if line[:1] != "-":
                    hunks[-1].new += line[1:] + "\n"
        return hunks

    def applied(self, tree):
        """Contents of the files it changes, with the change, by path. Raises PatchError if it does not apply."""
        contents = {}
        for hunk in self.hunks:
            file = tree / hunk.path
            if hunk.path not in contents:
                if not file.is_file():
                    raise PatchError(f"there is no {hunk.path}")
                contents[hunk.path] = file.read_text()
            # Whole lines; numbers in the hunk's head do not count, so edits elsewhere in the file do not matter.
            found = ("\n" + contents[hunk.path]).count("\n" + hunk.old)
            if found != 1:
                raise PatchError(f"{hunk.path} has these lines {found} times: {hunk.old.strip().splitlines()[0].strip()} ...")
            before, _, after = ("\n" + contents[hunk.path]).partition("\n" + hunk.old)
            contents[hunk.path] = (before + "\n" + hunk.new + after)[1:]
        return contents


def read_patches(arguments):
    patches = [Patch.read(file) for file in sorted(HERE.glob("*/*.patch"))]
    return [p for p in patches
            if (not arguments.room or p.room in arguments.room)
            and (not arguments.name or any(fnmatch.fnmatch(p.name.rsplit("/", 1)[1], n) for n in arguments.name))]


def check(patches):
    bad = 0
    targets = (ROOT / "tests" / "CMakeLists.txt").read_text()
    known = {"test_" + path.replace("/", "_") for path in re.findall(r"holdfast_tests\(([\w/]+)", targets)}
    known |= set(re.findall(r"add_executable\((test_\w+)", targets))
    for patch in patches:
        try:
            patch.applied(ROOT)
            unknown = set(patch.suites) - known
            if unknown or not patch.suites:
                raise PatchError(f"unknown suite {' '.join(unknown) or '(none)'}")
        except PatchError as error:
            print(f"{patch.name} does not apply: {error}")
            bad += 1
    print(f"{len(patches) - bad} of {len(patches)} patches apply")
    return 1 if bad else 0


def sync():
    """Makes the scratch copy equal to the working tree; files that are equal already keep their times."""
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT,
                            check=True, capture_output=True).stdout.decode().split("\0")
    wanted = {name for name in listed if name and (ROOT / name).is_file()}
    for name in wanted:
        source, target = ROOT / name, TREE / name
        contents = source.read_bytes()
        if target.is_file() and target.read_bytes() == contents:
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(contents)
        target.chmod(source.stat().st_mode)
    for file in TREE.rglob("*"):
        name = file.relative_to(TREE).as_posix()
        if file.is_file() and name not in wanted and not name.startswith("build/"):
            file.unlink()


class Builder:
    def __init__(self, jobs, log):
        self.jobs, self.log = jobs, log
        self.output = SCRATCH / "output"

    def run(self, script):
        """Exit code and output of a shell script in the copy; its process group ends with it."""
        environment = dict(os.environ, GTEST_FAIL_FAST="1", GTEST_BRIEF="1")
        environment.setdefault("HOLDFAST_PEERS", str(ROOT / "build" / "peers"))  # else what needs them skips
        with open(self.output, "wb") as output:
            with subprocess.Popen(["sh", "-c", script], cwd=TREE, stdout=output, stderr=subprocess.STDOUT,
                                  start_new_session=True, env=environment) as child:
                try:
                    code = child.wait()
                finally:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(child.pid, signal.SIGKILL)
        text = self.output.read_text(errors="replace")
        self.log.write(f"$ {script}\n{text}\nexit code {code}\n")
        self.log.flush()
        return code, text

    def build(self, suites):
        """A line of shell."""
        return f"ninja -C build/{PRESET} -j{self.jobs} {' '.join(suites)} || exit {NOT_BUILT}\n"

    @staticmethod
    def test(suite, timeout):
        """A line of shell. The limit ends what hangs."""
        return f"timeout -k 5 {timeout:.0f} build/{PRESET}/tests/{suite} || {{ echo failed: {suite} $?; exit {FAILED}; }}\n"


def baseline(builder, suites):
    """Seconds of each suite without a bug; None if one fails."""
    print(f"building {len(suites)} suites without any patch", flush=True)
    code, _ = builder.run(f"cmake --preset {PRESET} || exit {NOT_BUILT}\n" + builder.build(suites))
    if code != 0:
        print(f"the tree does not build: see {builder.output}")
        return None
    seconds = {}
    for suite in suites:
        code, text = builder.run(Builder.test(suite, 3600))
        taken = re.findall(r"\((\d+) ms total\)", text)
        if code != 0 or not taken:
            print(f"{suite} fails without any patch: see {builder.output}")
            return None
        seconds[suite] = int(taken[-1]) / 1000
        print(f"  {suite}: {seconds[suite]:.0f} s", flush=True)
    return seconds


def try_patch(builder, patch, seconds):
    """Verdict and what it is based on."""
    try:
        changed = patch.applied(TREE)
    except PatchError as error:
        return "does not apply", str(error)
    originals = {path: (TREE / path).read_text() for path in changed}
    try:
        for path, text in changed.items():
            (TREE / path).write_text(text)
        tests = [Builder.test(suite, max(LEAST_TIMEOUT_SECONDS, 10 * seconds[suite])) for suite in patch.suites]
        code, text = builder.run(builder.build(patch.suites) + "".join(tests))
        if code == NOT_BUILT:
            return "does not build", ""
        if code == 0:
            return "survived", ""
        failed = re.findall(r"^failed: (\w+) (\d+)$", text, re.MULTILINE)
        if not failed:
            return "not run", f"exit code {code}"
        names = re.findall(r"^\[  FAILED  \] ([\w./]+)", text, re.MULTILINE)
        how = " (took too long)" if failed[-1][1] == "124" else f": {names[0]}" if names else " (crashed)"
        return "killed", failed[-1][0] + how
    finally:
        for path, text in originals.items():
            (TREE / path).write_text(text)


def minutes(seconds):
    return f"{seconds / 60:.0f} min"


def run(patches, arguments):
    SCRATCH.mkdir(parents=True, exist_ok=True)
    results_file = SCRATCH / "results.json"
    results = json.loads(results_file.read_text()) if results_file.is_file() else {}
    to_do = [p for p in patches if not arguments.resume or results.get(p.name, [""])[0] != "killed"]
    sync()
    with open(SCRATCH / "log", "a", encoding="utf-8") as log:
        builder = Builder(arguments.jobs, log)
        seconds = baseline(builder, sorted({suite for p in to_do for suite in p.suites})) if to_do else {}
        if seconds is None:
            return 2
        start = time.monotonic()
        for done, patch in enumerate(to_do, start=1):
            log.write(f"\n===== {patch.name}: {patch.what}\n")
            verdict, why = results[patch.name] = try_patch(builder, patch, seconds)
            results_file.write_text(json.dumps(results, indent=1))
            left = (time.monotonic() - start) / done * (len(to_do) - done)
            print(f"[{done}/{len(to_do)}, {minutes(left)} left] {verdict}: {patch.name}{f' by {why}' if why else ''}", flush=True)
    return summary(patches, results)


def summary(patches, results):
    by_verdict = {}
    for patch in patches:
        by_verdict.setdefault(results[patch.name][0], []).append(patch)
    killed = len(by_verdict.pop("killed", []))
    tried = killed + len(by_verdict.get("survived", []))
    print(f"\n{killed} of {tried} killed ({100 * killed / max(tried, 1):.1f}%)")
    for verdict, others in by_verdict.items():
        for patch in others:
            print(f"  {verdict}: {patch.name}: {patch.what}")
    return 0 if killed == len(patches) else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only whether every patch applies")
    parser.add_argument("--list", action="store_true", help="names and what they are")
    parser.add_argument("--room", action="append", help="only this room's (may be repeated)")
    parser.add_argument("--name", action="append", help="only these, with * and ? (may be repeated)")
    parser.add_argument("--resume", action="store_true", help="not those that an earlier run killed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="of the build")
    arguments = parser.parse_args()
    patches = read_patches(arguments)
    if not patches:
        print("no such patch")
        return 2
    if arguments.list:
        for patch in patches:
            print(f"{patch.name}: {patch.what}")
        return 0
    if arguments.check:
        return check(patches)
    # As by Ctrl-C: what was planted in the copy is taken back, children end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        return run(patches, arguments)
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
