"""The agents of a run: loaded, and played."""

import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, get_args

from t3d.base.errors import BadInput, T3DError
from t3d.base.output import complain
from t3d.base.text import did_you_mean
from t3d.config import Config
from t3d.learn.agent import Agent
from t3d.learn.engines import AgentSource, agent_class, by_name, find_agent
from t3d.learn.networks import Body, find_body
from t3d.learn.saving import saved_config, saved_layout
from t3d.play.envs import EnvMaker, EnvSource, Spaces
from t3d.play.evaluate import Score, evaluation_env, spaces_of
from t3d.play.evaluate import evaluate as play_episodes
from t3d.run import trust as trusting
from t3d.run.folder import RunFolder
from t3d.run.records import Evaluation
from t3d.run.watchers import regularly

Which = Literal["best", "last"]


def load(
    run: str | Path,
    *,
    which: Which = "best",
    device: str = "cpu",
    agent: AgentSource | None = None,
    body: str | Body | None = None,
    importing: bool = False,
) -> Agent:
    """The agent of a run, the best by evaluation or the last; or the agent of a file.

    Of a run with an agent or a network body of your own, import their module first, or pass the
    class as `agent` and the function as `body`. `importing` imports both by the names that the
    run's config gives them, if you trust these (trust.py).
    """
    path = agent_file(run, which)
    config = dataclasses.replace(config_of(run), device=device)
    own = {"agent": agent, "body": body}
    own = {knob: value for knob, value in own.items() if value is not None}
    config = Config.from_dict(vars(config) | by_name(own))
    if importing:
        trusting.require(run, config, not_from_folder={*trusting.ENVIRONMENT, "ray", *own})
    find_agent(config.agent, importing=importing)
    find_body(config.body, importing=importing)
    # Any engine can read an agent: on another device it may be another.
    kind, _ = agent_class(config, saved_layout(path), fallback=True)
    loaded = kind.load(path, device)
    if which == "best" and path != Path(run):
        with suppress(T3DError):  # an agent without a score is as good
            loaded.score = RunFolder.open(run).score()
    return loaded


def agent_file(run: str | Path, which: Which) -> Path:
    """The file of an agent: that of a run, or `run` itself."""
    if which not in get_args(Which):
        hint = did_you_mean(str(which), get_args(Which))
        raise BadInput(f"which is {which!r}; expected one of: {', '.join(get_args(Which))}{hint}")
    if os.path.isfile(run):
        return Path(run)
    folder = RunFolder.open(run)
    path = folder.best_agent if which == "best" else folder.last_agent()
    if path is None or not path.is_file():
        advice = "let it train to its first evaluation"
        if which == "best" and folder.last_agent():
            advice += ", or take the last: --agent last (in Python, which='last')"
        raise BadInput(f"{run} has no {which} agent yet; {advice}")
    return path


def config_of(run: str | Path) -> Config:
    """The knobs of a run, or of an agent's file."""
    return saved_config(run) if os.path.isfile(run) else RunFolder.open(run).config()


def evaluate(
    run: str | Path | Agent,
    *,
    episodes: int = 10,
    seed: int = 0,
    which: Which = "best",
    env: EnvSource | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    eval_envs: int | None = None,
    agent: AgentSource | None = None,
    body: str | Body | None = None,
    trust: bool = False,
    waiting: Callable[[str], None] = complain,
) -> Score:
    """Play noiseless episodes with other seeds than those of training.

    `run` is a run's folder, an agent's file, or an agent. The environment, and an agent or a
    network body of your own, are imported by name. Of a run that was not trained here, pass them,
    or `trust=True` if you trust the code that it names. `waiting` is told every ten seconds how far
    it is.
    """
    if episodes < 1:
        raise BadInput(f"episodes is {episodes}; expected at least 1")
    if seed < 0:
        raise BadInput(f"seed is {seed}; expected at least 0")
    own = {"env": env, "eval_env": env, "agent": agent, "body": body}
    not_from_folder = {"ray", *(knob for knob, value in own.items() if value is not None)}
    if isinstance(run, Agent):
        # Its own code is here already; its config, with the environment, may be from a file.
        config, not_from_folder = run.config, not_from_folder | {"agent", "body"}
        trusting.require("the agent", config, not_from_folder=not_from_folder, trust=trust)
        player = run
    else:
        config = config_of(run)
        trusting.require(run, config, not_from_folder=not_from_folder, trust=trust)
        player = load(run, which=which, agent=agent, body=body, importing=True)
    if env is None and player.env_name is None:
        what = "the agent was made by hand and names no environment"
        raise BadInput(f"{what}; pass env=... (t3d eval: --env NAME)")
    number = 0

    def numbers() -> Iterator[int]:
        nonlocal number
        for number in range(episodes):  # noqa: UP028, `beat` reads it
            yield number

    beat = regularly(lambda since: waiting(f"episode {number + 1:,} of {episodes:,}, {since}"))

    def patiently() -> bool:  # it is called at every step of the episodes, and never stops them
        beat()
        return False

    maker = EnvMaker.variant(config, env, env_kwargs)
    if eval_envs is not None:
        knobs = dataclasses.replace(maker.config, eval_envs=eval_envs, collectors=None)
        maker = dataclasses.replace(maker, config=knobs)
    played = evaluation_env(maker, episodes)
    try:
        spaces_of(played).require_same(
            played.name, agent_spaces(player), "the environment of the agent"
        )
        return play_episodes(
            player.select_action,
            played,
            numbers(),
            seed,
            purpose="test",
            discount=config.discount,
            stop=patiently,
        )
    finally:
        played.close()


def agent_spaces(agent: Agent) -> Spaces:
    """The spaces of the environment that an agent is for."""
    return Spaces(agent.layout, *agent.bounds)


def step_of(folder: RunFolder, which: Which) -> int | None:
    """The step at which an agent of a run was saved."""
    if which == "last":
        return int(agent_file(folder.path, which).parent.name.removeprefix("step-"))
    *_, last = folder.records(Evaluation)
    return last.best_step


def keep_score(folder: RunFolder, score: Score) -> None:
    """Write the score of a run's agent on test episodes into its folder."""
    facts = {"mean": score.mean, "std": score.std, "returns": score.returns}
    facts |= {"episodes": len(score.returns), "step": step_of(folder, folder.scored_agent)}
    success = {} if score.success is None else {"success": score.success}
    folder.write_score(facts | success)
