"""Batched environments, against the rules of a naive loop."""

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import t3d
from helpers import batches
from helpers.runs import TINY, needs_envpool
from t3d import Config, T3DError
from t3d.base.errors import BadInput
from t3d.base.numbers import Array
from t3d.play.batched import BatchedEnvironments
from t3d.play.collect import Collector
from t3d.play.envs import EnvMaker
from t3d.play.evaluate import evaluate, evaluation_env
from t3d.run.doctor import examine
from t3d.run.folder import RunFolder
from t3d.run.records import Episode

BATCHES = "helpers.batches"


class Log:
    """A memory that keeps each environment's transitions in a list."""

    def __init__(self, num_envs: int) -> None:
        self.rows: list[list[tuple[Any, ...]]] = [[] for _ in range(num_envs)]

    def add(self, *columns: Any, envs: Any = None) -> None:
        envs = columns[6] if len(columns) == 7 else envs
        for i, env in enumerate(range(len(columns[3])) if envs is None else envs):
            self.rows[env].append(tuple(np.array(column[i]) for column in columns[:6]))

    def end(self, env: int) -> None:
        pass


def config(num_envs: int, **knobs: Any) -> Config:
    return Config(env_backend="batched", num_envs=num_envs, random_steps=10**6, **knobs)


def played(source: Any, num_envs: int, steps: int, **knobs: Any) -> tuple[Log, list[Any]]:
    """The transitions of so many steps of a collector, and its episodes."""
    settings = config(num_envs, **knobs)
    log, episodes = Log(num_envs), []
    with closing(BatchedEnvironments(EnvMaker(source, settings))) as environments:
        collector = Collector(environments, settings)
        collector.reset()
        for _ in range(steps):
            episodes += collector.step(lambda states: states[:, :1], log)
        assert collector.steps == sum(map(len, log.rows))
    return log, episodes


def check_rows(log: Log, lengths: list[int]) -> int:
    """Each environment's transitions are those of a loop that plays it alone; returns its ends."""
    ends = 0
    for env, rows in enumerate(log.rows):
        episode, step, last = 0, 0, 0.0
        for state, next_state, action, reward, done, truncated in rows:
            assert state.tolist() == [env, episode, step, np.float32(last)]
            assert next_state.tolist() == [env, episode, step + 1, action[0]]
            assert reward == pytest.approx(step + 1 + action[0])
            step, last = step + 1, action[0]
            ended = step == lengths[(env + episode) % len(lengths)]
            assert (done, truncated) == (ended and episode % 2 == 0, ended and episode % 2 == 1)
            if ended:
                episode, step, last, ends = episode + 1, 0, 0.0, ends + 1
    return ends


@settings(max_examples=60, deadline=None)
@given(
    mode=st.sampled_from(sorted(batches.MODES)),
    num_envs=st.integers(1, 5),
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    steps=st.integers(1, 30),
    copy=st.booleans(),
)
def test_each_environment_of_a_batch_plays_as_it_would_alone(
    mode: str, num_envs: int, lengths: list[int], steps: int, copy: bool
) -> None:
    def make() -> Any:
        return batches.toys(num_envs, mode, lengths, copy)

    log, episodes = played(make, num_envs, steps)
    assert check_rows(log, lengths) == len(episodes)
    for env, number, length, total, info in episodes:
        assert length == lengths[(env + number) % len(lengths)]
        rows = [row for row in log.rows[env] if row[0][1] == number]
        assert total == pytest.approx(sum(float(row[3]) for row in rows))
        assert info.success == (number % 2 == 0)
        assert info.means == {"height": pytest.approx((length + 1) / 2)}
    # In the modes that lose no step, every environment plays in each.
    if mode != "next":
        assert all(len(rows) == steps for rows in log.rows)


@pytest.mark.parametrize("mode", sorted(batches.MODES))
def test_tensors_of_pytorch_are_taken_and_given(mode: str) -> None:
    for source in ("in_torch", "in_dicts"):
        log, _ = played(f"{BATCHES}:{source}", 3, 20, env_kwargs={"mode": mode})
        assert check_rows(log, [3, 1, 5]) > 3
    maker = EnvMaker(f"{BATCHES}:in_dicts", config(3, env_kwargs={"mode": mode}))
    with closing(evaluation_env(maker)) as env:
        assert evaluate(lambda rows: rows[:, :1], env, range(2), seed=0).lengths[0] == 3


@pytest.mark.parametrize(
    ("mode", "flaw", "words"),
    [
        ("same", "no final", r"environment 1 ended, and the info has no final_obs for it.*lost"),
        ("same", "short finals", r"final_obs of the info has no row for environment 1, which end"),
        ("same", "says next", r"environment 1 ended with the step before, and has reward .* reset"),
        ("next", "says same", "ended, and the info has no final_obs for it"),
        ("disabled", "resets others", r"reset_mask changed environment 0, which had not ended"),
        ("next", "nan", r"step 1: observation\[2\] of environment 1 is nan; expected finite"),
        ("next", "infinite reward", "the reward of environment 1 is inf; expected a finite"),
        ("next", "one reward", r"the rewards have shape \(\); expected \(3,\), one for each"),
        ("next", "fewer rows", r"observation has shape \(2, 4\); expected \(3, 4\)"),
        ("next", "odd ends", r"the terminations are \[2.0, .*; expected truth values"),
        ("next", "raises", r"step\(\) raised RuntimeError: out of order"),
        ("next", "four values", r"step\(\) must return \(observations, rewards, terminations"),
        ("next", "odd mode", "has autoreset_mode 'sometimes'; expected one of"),
        ("disabled", "changes the dtype", "it changed .*dtype.*; have it put that back"),
    ],
)
def test_a_batch_that_breaks_a_rule_is_named(mode: str, flaw: str, words: str) -> None:
    with pytest.raises(T3DError, match=words):
        played(f"{BATCHES}:flawed", 3, 20, env_kwargs={"mode": mode, "flaw": flaw})


def test_an_odd_info_is_done_without(tmp_path: Path) -> None:
    arguments = {"mode": "same", "flaw": "odd info"}
    knobs = TINY | {"num_envs": 3, "env_backend": "batched", "max_episode_steps": 0}
    run = tmp_path / "run"
    t3d.train(f"{BATCHES}:flawed", run=run, quiet=True, env_kwargs=arguments, **knobs)
    episodes = list(RunFolder(run).records(Episode))
    assert {episode.success for episode in episodes} == {0, 1}


def test_what_is_not_for_batches_says_so(tmp_path: Path) -> None:
    run, name = tmp_path / "run", f"{BATCHES}:toys"
    knobs = TINY | {"num_envs": 3, "env_backend": "batched", "max_episode_steps": 0}
    with pytest.raises(T3DError, match="Curriculum cannot set 'lengths' in a batch of environm"):
        t3d.train(name, run=run, watchers=[t3d.Curriculum("lengths", [[0, [1]]])], **knobs)
    t3d.train(name, run=run, quiet=True, **knobs)
    with pytest.raises(T3DError, match="cannot be continued elsewhere: resume with --env-backend"):
        t3d.resume(run, env_backend="inline", steps=100)
    with pytest.raises(T3DError, match="is played in batches, of which no video is made"):
        t3d.make_env(run, render_mode="rgb_array")
    diagnosis = examine(EnvMaker(name, config(3)), seconds=0.1)
    assert diagnosis.facts["deterministic"] == "not known: a batch cannot repeat an episode"
    assert diagnosis.facts["environment's speed"].endswith("one of a batch alone")


def test_a_batch_that_says_nothing_resets_with_the_next_step() -> None:
    arguments = {"mode": "next", "flaw": "says nothing"}
    log, _ = played(f"{BATCHES}:flawed", 3, 20, env_kwargs=arguments)
    assert check_rows(log, [3, 1, 5]) > 3


@pytest.mark.parametrize(
    ("source", "knobs", "words"),
    [
        ("four", {"num_envs": 3}, "made a batch of 4 environments, and num_envs is 3: use --num-e"),
        ("no_batch", {}, "made a Toy; with --env-backend batched, T3D expects a gymnasium.vector"),
        ("toys", {"env_kwargs": {"mod": "same"}}, "no argument 'mod'.*did you mean 'mode'"),
        ("toys", {"frame_stack": 2}, "frame_stack does not work with --env-backend batched; buil"),
        ("toys", {"max_episode_steps": 9}, "leave out --max-episode-steps"),
        ("toys", {"collectors": 2}, "a batch of environments is played in this process; leave"),
        ("toys", {"single_env": True}, "--single-env does not go with"),
    ],
)
def test_what_does_not_go_with_a_batch_is_refused(
    tmp_path: Path, source: str, knobs: dict[str, Any], words: str
) -> None:
    knobs = TINY | {"num_envs": 3, "env_backend": "batched", "max_episode_steps": 0} | knobs
    with pytest.raises(BadInput, match=words):
        t3d.train(f"{BATCHES}:{source}", run=tmp_path / "run", quiet=True, **knobs)
    assert not (tmp_path / "run").exists()


def test_a_name_without_a_batched_form_and_a_batch_without_the_backend_are_refused() -> None:
    with pytest.raises(BadInput, match=r"'Reacher2D-v9' has no batched form.*module:callable"):
        EnvMaker("Reacher2D-v9", config(2)).make()
    with pytest.raises(BadInput, match="play a batch with --env-backend batched"):
        EnvMaker(f"{BATCHES}:four", Config()).make()


@pytest.mark.parametrize("mode", sorted(batches.MODES))
def test_evaluations_play_one_environment_of_a_batch(mode: str) -> None:
    maker = EnvMaker(f"{BATCHES}:four", config(4, env_kwargs={"mode": mode}))
    states: list[Array] = []

    def policy(rows: Array) -> Array:
        states.append(rows[0].copy())
        return np.full((1, 1), 0.25, np.float32)

    with closing(evaluation_env(maker)) as env:
        score = evaluate(policy, env, range(3), seed=0)
    # Those of the first environment. A toy that resets itself in its last step is a number ahead.
    numbers = [0, 2, 4] if mode == "same" else [0, 1, 2]
    lengths = [(3, 1, 5)[number % 3] for number in numbers]
    assert score.lengths == lengths
    assert score.returns == [n * (n + 1) / 2 + 0.25 * n for n in lengths]
    assert [info.success for info in score.infos] == [number % 2 == 0 for number in numbers]
    assert [state[2] for state in states] == [step for n in lengths for step in range(n)]


def test_a_batch_trains_is_scored_and_resumes_with_new_episodes(tmp_path: Path) -> None:
    run = tmp_path / "run"
    knobs = TINY | {"num_envs": 4, "env_backend": "batched", "max_episode_steps": 0}
    knobs |= {"eval_episodes": 2, "env_kwargs": {"mode": "same"}}
    t3d.train(f"{BATCHES}:toys", run=run, quiet=True, video=True, **knobs)
    episodes = list(RunFolder(run).records(Episode))
    assert {episode.env for episode in episodes} == {0, 1, 2, 3}
    assert all(episode.info["height"] == ((episode.length or 0) + 1) / 2 for episode in episodes)
    assert t3d.inspect(run)["bit_exact"]  # it was never stopped
    t3d.resume(run, steps=120, quiet=True)
    facts = t3d.inspect(run)
    assert facts["step"] == 120
    assert "a batch of environments cannot play them again" in facts["not_bit_exact"][-1]
    assert t3d.evaluate(run, episodes=3).lengths == [3, 5, 1]  # its toy resets itself, and is reset
    with closing(t3d.make_env(run)) as env:
        assert env.reset(seed=0)[0].tolist() == [0, 0, 0, 0]


def test_the_same_seed_gives_the_same_run(tmp_path: Path) -> None:
    knobs = TINY | {"num_envs": 4, "env_backend": "batched", "max_episode_steps": 0}
    for name in ("one", "two"):
        t3d.train(f"{BATCHES}:toys", run=tmp_path / name, quiet=True, **knobs)
    assert t3d.inspect(tmp_path / "one")["digest"] == t3d.inspect(tmp_path / "two")["digest"]


@needs_envpool
def test_a_pool_of_envpool_trains_with_the_right_ends(tmp_path: Path) -> None:
    knobs = TINY | {"num_envs": 16, "env_backend": "batched", "max_episode_steps": 0}
    knobs |= {"steps": 16 * 1010, "updates_per_step": 0.001, "eval_every": 0, "log_every": 10_000}
    t3d.train(
        "HalfCheetah-v5",
        run=tmp_path / "run",
        quiet=True,
        checkpoint_every=0,
        **{name: value for name, value in knobs.items() if name != "checkpoint_every"},
    )
    episodes = list(RunFolder(tmp_path / "run").records(Episode))
    assert sorted(episode.env or 0 for episode in episodes) == list(range(16))
    assert {episode.length for episode in episodes} == {1000}
    assert {"x_velocity"} <= set(episodes[0].info)
