"""The speed and cost of collectors: the figures of docs/scale.md.

    python benchmarks/scale.py                  everything, about 15 minutes
    python benchmarks/scale.py --only slow      one part: slow, cheetah, model, nodes
    python benchmarks/scale.py --draw           the plot again, from the JSON

slow      a simulator of 10 ms per step: 1 and 8 collectors, 8 processes, and SB3's 8
cheetah   HalfCheetah-v5: one collector next to the learner, against a run without
model     what a step, a policy, a row and an update cost
nodes     the model's prediction, against a cluster of four Ray nodes on this machine
"""

import argparse
import json
import statistics
import tempfile
import time
from typing import Any

from bench import HERE, Contestant
from t3d.play.envs import EnvMaker

RESULTS = HERE / "results" / "scale.json"
PLOT = HERE.parent / "docs" / "images" / "scale.png"
HIDDEN, BATCH = 256, 256


def turns(contestants: dict[str, Contestant], rounds: int, seconds: float) -> dict[str, Any]:
    """Let all work in turns. Steps that were played ahead during others' turns do not count."""
    for _ in range(rounds):
        for contestant in contestants.values():
            contestant.turn(seconds / 3)
            contestant.rates.pop()
            contestant.turn(seconds)
    results = {}
    for name, contestant in contestants.items():
        results[name] = {"rate": statistics.median(contestant.rates), "rates": contestant.rates}
        contestant.close()
        print(f"  {name}: {results[name]['rate']:.1f} steps/s", flush=True)
    return results


def t3d(env: str, threads: int = 0, **knobs: Any) -> Contestant:
    """T3D in a process of its own."""
    return Contestant(f"fused-{threads}", "steps", env, HIDDEN, BATCH, json.dumps(knobs))


def measure_slow() -> Any:
    """A simulator of 10 ms per step, with an update every eighth step, like SB3 with eight."""
    env, ratio = "slow_env:Slow10-v0", 0.125
    shared: Any = {"updates_per_step": ratio, "collector_cpus": 0.1, "threads": 1}
    rates = turns(
        {
            "1 collector": t3d(env, collectors=1, **shared),
            "8 collectors": t3d(env, collectors=8, **shared),
            "8 processes": t3d(
                env, 1, num_envs=8, env_backend="processes", overlap=True, updates_per_step=ratio
            ),
            "sb3 SubprocVecEnv 8": Contestant("sb3", "steps", env, HIDDEN, BATCH, 8, ratio),
        },
        rounds=5,
        seconds=8,
    )
    return rates | {"updates_per_step": ratio}


def measure_cheetah() -> Any:
    """HalfCheetah-v5, an update for every step."""
    env = "HalfCheetah-v5"
    return turns({"local": t3d(env), "1 collector": t3d(env, collectors=1)}, rounds=9, seconds=5)


def measure_model() -> Any:
    """What each part costs, on HalfCheetah-v5, with Ray on this machine."""
    import pickle

    import numpy as np

    from t3d import Config
    from t3d.remote.collectors import Collectors
    from t3d.remote.messages import Request
    from t3d.run.folder import RunFolder
    from t3d.run.loop import Run

    rare = {"eval_every": 0, "checkpoint_every": 0, "log_every": 10**9, "steps": 10**9}
    knobs = {"env": "HalfCheetah-v5", "collectors": 1, "random_steps": 0} | rare
    config = Config.from_dict(knobs)
    run = Run.start(EnvMaker(config.env, config), RunFolder(tempfile.mkdtemp() + "/run"), about={})
    collectors = run.collector
    assert isinstance(collectors, Collectors)
    ray, actor = collectors.members.ray, collectors.members.actors[0]
    store = collectors.exchange.store
    memory = run.memory
    costs: dict[str, float] = {}

    number = 0  # of the policy

    def play(count: int) -> Any:
        weights = ray.put(run.agent.weights())
        return ray.get(actor.play.remote(Request(0, number, 0, count), weights))

    chunk = play(25)
    costs["weights_bytes"] = run.agent.weights().nbytes
    costs["row_bytes"] = len(pickle.dumps(chunk)) / 25
    for _ in range(20):  # enough to learn from
        store([(0, play(25))], 0, memory)

    def median(work: Any, times: int) -> float:
        """The median of several timings, in seconds."""
        taken = []
        for _ in range(times):
            began = time.perf_counter()
            work()
            taken.append(time.perf_counter() - began)
        return statistics.median(taken)

    def with_new_policy(count: int) -> Any:
        nonlocal number
        number += 1
        return play(count)

    costs["play_seconds"] = statistics.median(play(25).seconds / 25 for _ in range(40))
    one, many = median(lambda: play(1), 100), median(lambda: play(51), 40)
    costs["request_seconds"] = one - (many - one) / 50
    # In turns: a new policy, and one that the collector already has.
    pairs = [(median(lambda: with_new_policy(1), 3), median(lambda: play(1), 3)) for _ in range(60)]
    costs["policy_seconds"] = statistics.median(new - old for new, old in pairs)
    costs["put_seconds"] = median(lambda: ray.put(run.agent.weights()), 100)
    # The learner's own work for a chunk: request it, and receive it.
    weights = ray.put(run.agent.weights())
    began = time.perf_counter()
    refs = [actor.play.remote(Request(0, number, 0, 25), weights) for _ in range(40)]
    asking = time.perf_counter() - began
    ray.wait(refs, num_returns=len(refs))
    began = time.perf_counter()
    for ref in refs:
        ray.wait([ref])
        ray.get(ref)
    costs["ask_seconds"] = (asking + time.perf_counter() - began) / len(refs)
    began = time.perf_counter()
    for t in range(25):
        store([(0, chunk)], t, memory)
    costs["store_seconds"] = (time.perf_counter() - began) / 25
    run.agent.train(memory, 50)
    costs["update_seconds"] = median(lambda: run.agent.train(memory, 2), 200) / 2
    run.close()
    print({name: float(f"{np.float64(value):.3g}") for name, value in costs.items()}, flush=True)
    return costs


def predicted(model: dict[str, float], count: int, step: float, updates: float) -> float:
    """Steps per second of `count` collectors, each with one environment of `step` seconds.

    Either the collectors are the limit, or the learner, which stores, updates and sends policies.
    """
    each = min(25, max(1, round(1 / step)))  # steps of a chunk, at the default staleness
    play = step + (model["request_seconds"] + model["policy_seconds"]) / each / 2  # two in flight
    learn = model["store_seconds"] + updates * model["update_seconds"]
    learn += (model["put_seconds"] + model["ask_seconds"]) / each
    return min(count / play, 1 / learn)


def measure_nodes(model: dict[str, float]) -> Any:
    """Collectors with slow simulators on four nodes, against the prediction."""
    import os

    os.environ["PYTHONPATH"] = str(HERE)
    from ray.cluster_utils import Cluster

    cluster: Any = Cluster(initialize_head=True, head_node_args={"num_cpus": 16})
    for _ in range(3):
        cluster.add_node(num_cpus=16)
    cluster.wait_for_nodes()
    points = []
    cases = [(1, 100, 0.25), (4, 100, 0.25), (16, 100, 0.25), (48, 100, 0.25)]
    for count, milliseconds, updates in [*cases, (2, 10, 1.0), (16, 10, 1.0)]:
        knobs = {"collectors": count, "updates_per_step": updates, "ray": cluster.address}
        env = f"slow_env:Slow{milliseconds}-v0"
        contestant = t3d(env, 1 if updates < 1 else 0, **knobs, random_steps=200)
        contestant.turn(6)
        contestant.rates.clear()
        contestant.turn(20)
        contestant.close()
        rate = predicted(model, count, milliseconds / 1000 + 0.0005, updates)
        case = {"collectors": count, "milliseconds": milliseconds, "updates_per_step": updates}
        points.append(case | {"measured": contestant.rates[0], "predicted": rate})
        print(f"  {case}: {contestant.rates[0]:.1f}, predicted {rate:.1f}", flush=True)
    cluster.shutdown()
    return points


def draw(results: dict[str, Any]) -> None:
    """Steps per second for 1 to 1,000 collectors."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axes = figure.add_subplot()
    counts = [round(10 ** (k / 20)) for k in range(61)]
    for step, updates in ((0.01, 1), (0.01, 0.1), (0.1, 0.25), (0.1, 0.02)):
        rates = [predicted(results["model"], n, step, updates) for n in counts]
        label = f"{step * 1000:g} ms per step, {updates:g} updates per step"
        axes.plot(counts, rates, lw=2, label=label)
    x, y = zip(*((point["collectors"], point["measured"]) for point in results["nodes"]))
    axes.plot(x, y, "k.", ms=9, label="measured")
    axes.set(xscale="log", yscale="log", xlabel="collectors", ylabel="environment steps per second")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right", fontsize=9)
    figure.savefig(PLOT, dpi=150)
    print(PLOT)


def main() -> None:
    """Measure, store the results, and draw them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="slow,cheetah,model,nodes")
    parser.add_argument("--draw", action="store_true")
    arguments = parser.parse_args()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for part in [] if arguments.draw else arguments.only.split(","):
        print(part, flush=True)
        work: Any = {"slow": measure_slow, "cheetah": measure_cheetah, "model": measure_model}
        work = work.get(part) or (lambda: measure_nodes(results["model"]))
        results[part] = work()
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    if "model" in results and "nodes" in results:
        draw(results)


if __name__ == "__main__":
    main()
