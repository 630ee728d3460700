#!/usr/bin/env python3
"""Regret of `bayes` and `random` of framework/search beside Optuna's TPE and GP, on five known functions, at equal
budgets, over 20 seeds. CARBS is not in the Python registry and is not compared.

    python3 -m venv venv && venv/bin/pip install optuna scipy cmaes torch
    cmake --build --preset release --target search_ask
    venv/bin/python tests/bench/search_vs_optuna.py build/release/tests/search_ask [--seeds 20] [--first-seed 0]
                    [--jobs 2] [--functions branin,...] [--searches bayes,...]

Regret: true value at the point whose measured value is lowest, minus the lowest there is. Samplers of Optuna have their
default options; failures are told as TrialState.FAIL. A trial that the rest of the budget does not cover ends a search.
Seconds are those of a whole search by one thread, --jobs searches at a time.
"""
import argparse
import json
import math
import multiprocessing
import os
import random
import statistics
import subprocess
import time
import warnings


def branin(p):
    x, y = p["x"], p["y"]
    return ((y - 5.1 / (4 * math.pi**2) * x * x + 5 / math.pi * x - 6) ** 2
            + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10)


BRANIN_SPACE = [{"name": "x", "low": -5.0, "high": 10.0}, {"name": "y", "low": 0.0, "high": 15.0}]
BRANIN_LOWEST = 0.39788735772973816

HARTMANN_A = [[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14], [3, 3.5, 1.7, 10, 17, 8], [17, 8, 0.05, 10, 0.1, 14]]
HARTMANN_P = [[1312, 1696, 5569, 124, 8283, 5886], [2329, 4135, 8307, 3736, 1004, 9991],
              [2348, 1451, 3522, 2883, 3047, 6650], [4047, 8828, 8732, 5743, 1091, 381]]


def hartmann(p):
    x = [p[f"x{i}"] for i in range(6)]
    return -sum(c * math.exp(-sum(a * (xi - q * 1e-4) ** 2 for a, xi, q in zip(A, x, P)))
                for c, A, P in zip([1.0, 1.2, 3.0, 3.2], HARTMANN_A, HARTMANN_P))


def failing(p):  # a crash above a line, which two of Branin's three minima are beyond
    return None if p["x"] + p["y"] / 2 > 5 else branin(p)


def conditional(p):
    wd = 0.02 * (math.log10(p["wd"]) + 2) ** 2
    if p["optimizer"] == "adamw":
        return 0.1 + wd + 0.2 * (math.log10(p["adamw.lr"]) + 3) ** 2 + 0.5 * (p["adamw.beta"] - 0.7) ** 2
    if p["optimizer"] == "muon":
        return wd + 0.3 * (math.log10(p["muon.lr"]) + 1.7) ** 2 + 2 * (p["muon.momentum"] - 0.93) ** 2
    return 0.3 + wd + 0.1 * (math.log10(p["sgd.lr"]) + 0.5) ** 2


def under(optimizer, name, low, high, log=False):
    return {"name": f"{optimizer}.{name}", "low": low, "high": high, "log": log, "if": ["optimizer", optimizer]}


def curve(p):  # a loss that falls with the steps that are paid for; the best learning rate depends on them
    scale = p["steps"] / 100
    return (1.5 + 3 * scale**-0.4 + 0.15 * (math.log10(p["lr"]) + 3 + 0.3 * math.log10(scale)) ** 2
            + 0.05 * (math.log10(p["wd"]) + 2) ** 2)


# name: function (None: a failure), space, lowest value, budget, cost of a point, deviation of noise
FUNCTIONS = {
    "branin": (branin, BRANIN_SPACE, BRANIN_LOWEST, 30, lambda p: 1, 0.0),
    "hartmann6 with noise": (hartmann, [{"name": f"x{i}", "low": 0.0, "high": 1.0} for i in range(6)], -3.32236801141551,
                             60, lambda p: 1, 0.1),
    "failures": (failing, BRANIN_SPACE, BRANIN_LOWEST, 40, lambda p: 1, 0.0),
    "conditional": (conditional, [
        {"name": "optimizer", "choices": ["adamw", "muon", "sgd"]}, {"name": "wd", "low": 1e-4, "high": 1.0, "log": True},
        under("adamw", "lr", 1e-5, 1e-1, True), under("adamw", "beta", 0.0, 0.99), under("muon", "lr", 1e-4, 1.0, True),
        under("muon", "momentum", 0.5, 0.99), under("sgd", "lr", 1e-4, 10.0, True)], 0.0, 50, lambda p: 1, 0.0),
    "cost": (curve, [{"name": "lr", "low": 1e-5, "high": 1e-1, "log": True},
                     {"name": "wd", "low": 1e-4, "high": 1.0, "log": True},
                     {"name": "steps", "low": 100, "high": 10000, "log": True, "integer": True}],
             1.5 + 3 * 100**-0.4, 600, lambda p: p["steps"] / 100, 0.0),
}


class Ours:
    def __init__(self, program, strategy, space, seed):
        self.pipe = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.send({"space": space, "strategy": strategy, "seed": seed})
        self.send({})

    def send(self, line):
        self.pipe.stdin.write(json.dumps(line) + "\n")
        self.pipe.stdin.flush()

    def ask(self):
        line = self.pipe.stdout.readline()
        return json.loads(line)["point"] if line else None

    def tell(self, value, cost):
        self.send({"failed": value is None, "value": value or 0.0, "cost": cost})

    def end(self):
        self.pipe.stdin.close()
        self.pipe.wait()


class Optuna:
    def __init__(self, sampler, space, seed):
        import optuna
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        warnings.simplefilter("ignore")
        self.fail = optuna.trial.TrialState.FAIL
        make = {"optuna tpe": optuna.samplers.TPESampler, "optuna gp": optuna.samplers.GPSampler}[sampler]
        self.study, self.space = optuna.create_study(sampler=make(seed=seed)), space

    def ask(self):
        self.trial, point = self.study.ask(), {}
        for d in self.space:
            name = d["name"]
            if "if" in d and point.get(d["if"][0]) != d["if"][1]:
                continue
            if "choices" in d:
                point[name] = self.trial.suggest_categorical(name, d["choices"])
            else:
                suggest = self.trial.suggest_int if d.get("integer") else self.trial.suggest_float
                point[name] = suggest(name, d["low"], d["high"], log=d.get("log", False))
        return point

    def tell(self, value, cost):
        if value is None:
            self.study.tell(self.trial, state=self.fail)
        else:
            self.study.tell(self.trial, value)

    def end(self):
        pass


def regret(job):
    program, name, search, seed = job
    function, space, lowest, budget, cost_of, noise = FUNCTIONS[name]
    begin = time.monotonic()
    one = Optuna(search, space, seed) if search.startswith("optuna") else Ours(program, search, space, seed)
    errors, best, trials = random.Random(seed), None, 0
    while (point := one.ask()) is not None:
        cost = cost_of(point)
        if cost > budget + 1e-9:
            break
        budget, trials = budget - cost, trials + 1
        true = function(point)
        measured = None if true is None else true + noise * errors.gauss(0, 1)
        if measured is not None and (best is None or measured < best[0]):
            best = (measured, true)
        one.tell(measured, cost)
    one.end()
    return name, search, (math.inf if best is None else best[1] - lowest), trials, time.monotonic() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--functions", default=",".join(FUNCTIONS))
    parser.add_argument("--searches", default="bayes,random,optuna tpe,optuna gp")
    arguments = parser.parse_args()
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    jobs = [(arguments.program, name, search, seed) for name in arguments.functions.split(",")
            for search in arguments.searches.split(",") for seed in seeds]
    found = {}
    os.environ["OMP_NUM_THREADS"] = "1"  # of each job: also of PyTorch and NumPy, which only jobs import
    print(f"| function | search | regret, median of {arguments.seeds} seeds | quartiles | trials | seconds |\n"
          "|---|---|---|---|---|---|", flush=True)
    with multiprocessing.Pool(arguments.jobs) as pool:
        for name, search, value, trials, seconds in pool.imap(regret, jobs):
            group = found.setdefault((name, search), [])
            group.append((value, trials, seconds))
            if len(group) < arguments.seeds:
                continue
            low, median, high = statistics.quantiles([v for v, _, _ in group], n=4, method="inclusive")
            print(f"| {name} | {search} | {median:.2g} | {low:.2g} to {high:.2g} | "
                  f"{statistics.median(t for _, t, _ in group):g} | {statistics.median(s for _, _, s in group):.2f} |",
                  flush=True)


if __name__ == "__main__":
    main()
