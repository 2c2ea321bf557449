"""Which class learns: engines, agents of the user's own, and what is refused."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

import t3d
from helpers.agents import changed
from helpers.runs import TINY
from t3d import T3D, Agent, Batch, Config, FusedT3D
from t3d.base.errors import BadInput
from t3d.base.observation import Image, Layout
from t3d.learn.engines import agent_class, agent_name, by_name, find_agent, make_agent
from t3d.learn.networks import mlp
from t3d.learn.replay.sampling import Uniform

ME = __name__
SPACES = (Layout(3), [-1.0], [1.0])


class Careful(T3D):
    """Large actions cost something."""

    def actor_loss(self, batch: Batch) -> Tensor:
        penalty: Tensor = self.actor(batch.state).square().mean()
        return super().actor_loss(batch) + penalty


class Unfinished(T3D):
    def build(self, weights: np.random.Generator) -> None:
        super().build(weights)
        raise ZeroDivisionError("nothing is left")


class Empty(Agent):
    """Has none of the methods that an agent needs."""


class Picky(T3D):
    @classmethod
    def why_not(cls, config: Config, layout: Layout | None) -> str:
        return "it only learns on Sundays"


class LooseParameter(T3D):
    def build(self, weights: np.random.Generator) -> None:
        super().build(weights)
        self.temperature = nn.Parameter(torch.zeros(()))


class LooseOptimizer(T3D):
    def build(self, weights: np.random.Generator) -> None:
        super().build(weights)
        self.slow = torch.optim.SGD(self.critic.parameters(), lr=0.1)


class LooseNetworks(T3D):
    def build(self, weights: np.random.Generator) -> None:
        super().build(weights)
        self.ensemble = [nn.Linear(3, 1), nn.Linear(3, 1)]


class Late(T3D):
    """Makes a network after `build`, which a file would have and a loaded agent would not."""

    def __init__(self, *sizes: Any, **more: Any) -> None:
        super().__init__(*sizes, **more)
        self.late = nn.Linear(3, 1)


class Measures(T3D):
    """Reads a number of its networks in `build`, which a skeleton does not have."""

    def build(self, weights: np.random.Generator) -> None:
        super().build(weights)
        self.first = next(self.actor.parameters()).flatten()[0].item()


class Complex(T3D):
    def build(self, weights: np.random.Generator) -> None:
        super().build(weights)
        self.critic.register_buffer("phase", torch.zeros(2, dtype=torch.complex64))


class Flat(T3D):
    def select_action(self, state: ArrayLike) -> NDArray[np.float32]:
        return super().select_action(state)[:, 0]


class Listing(T3D):
    def value(self, state: ArrayLike) -> NDArray[np.float32]:
        values: Any = super().value(state).tolist()
        return values  # type: ignore[no-any-return]


class Forgetful(Uniform):
    def state_dict(self) -> dict[str, Any]:
        return {"count": 3}


class ForgetfulT3D(T3D):
    def build(self, weights: np.random.Generator) -> None:
        super().build(weights)
        self.sampler = Forgetful()


class Ignored(FusedT3D):
    """Would change step 13, but the compiled update does not ask it."""

    def actor_loss(self, batch: Batch) -> Tensor:
        return super().actor_loss(batch)


class Faster(FusedT3D):
    """An own agent on the fused engine."""


def only_a_function() -> None:
    """Not a class."""


def test_the_fastest_engine_that_can_be_used_is_taken() -> None:
    assert agent_class(Config()) == (FusedT3D, "")
    assert agent_class(Config(engine="reference")) == (T3D, "")
    assert agent_class(Config(engine="fused")) == (FusedT3D, "")


REASONS: list[tuple[dict[str, Any], Layout | None, str]] = [
    ({}, Layout(0, (Image(3, 32, 32),)), "fused has no convolutions for images"),
    ({"device": "cuda:0"}, None, "fused runs on the CPU, not on cuda:0"),
    ({"body": "layer_norm"}, None, "fused has no network body layer_norm, only mlp"),
    ({"agent": f"{ME}:Careful"}, None, f"fused runs the agent t3d, not {ME}:Careful"),
]


@pytest.mark.parametrize(("knobs", "layout", "why"), REASONS)
def test_where_the_fused_engine_cannot_be_used_it_says_why(
    knobs: dict[str, Any], layout: Layout | None, why: str
) -> None:
    kind = Careful if "agent" in knobs else T3D
    assert agent_class(Config(**knobs), layout) == (kind, why)
    with pytest.raises(BadInput, match=rf"^engine {why}; use --engine reference$"):
        agent_class(Config(engine="fused", **knobs), layout)
    # An agent of such a run can still be read.
    assert agent_class(Config(engine="fused", **knobs), layout, fallback=True) == (kind, why)


def test_without_numba_there_is_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("t3d.learn.fused")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "numba", None)  # as if it were not installed
    kind, why = agent_class(Config())
    assert kind is T3D
    assert why.startswith("fused needs numba: ")
    with pytest.raises(BadInput, match=r"engine fused needs numba: .*; use --engine reference"):
        agent_class(Config(engine="fused"))


def test_with_a_numba_that_compiles_nothing_there_is_the_reference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("numba.config.DISABLE_JIT", 1)  # as NUMBA_DISABLE_JIT=1 does
    why = "fused is compiled by Numba, which NUMBA_DISABLE_JIT turns off"
    assert agent_class(Config()) == (T3D, why)
    with pytest.raises(BadInput, match=f"^engine {why}; use --engine reference$"):
        agent_class(Config(engine="fused"))


def test_an_own_agent_may_be_on_the_fused_engine() -> None:
    config = Config(agent=agent_name(Faster))
    assert agent_class(config) == (Faster, "")
    with pytest.raises(BadInput, match=f"reference runs the agent t3d, not {ME}:Faster"):
        agent_class(Config(agent=agent_name(Faster), engine="reference"))


def test_an_agent_of_ones_own_is_found_by_its_name_or_passed_as_a_class() -> None:
    assert find_agent("t3d") is None
    assert find_agent(f"{ME}:Careful") is Careful
    assert agent_name("t3d") == agent_name(T3D) == agent_name(FusedT3D) == "t3d"
    assert agent_name(Careful) == f"{ME}:Careful"

    class Local(T3D):
        pass

    name = agent_name(Local)
    assert "<locals>" in name
    assert find_agent(name, importing=False) is Local
    agent, _ = make_agent(Config(agent=name), *SPACES)
    assert type(agent) is Local
    assert (agent.config.agent, agent.config.engine) == (name, "reference")
    agent, _ = make_agent(Config(), *SPACES, agent=Careful)
    assert type(agent) is Careful
    agent, _ = make_agent(Config(agent=name), *SPACES, agent="t3d")
    assert type(agent) is FusedT3D


def test_knobs_may_hold_classes_and_callables() -> None:
    assert by_name({"agent": Careful, "body": mlp, "tau": 0.1}) == {
        "agent": f"{ME}:Careful",
        "body": "t3d.learn.networks:mlp",
        "tau": 0.1,
    }
    assert by_name({"tau": 0.1}) == {"tau": 0.1}


BAD: dict[str, str] = {
    "t3": "no agent is called 't3'; did you mean 't3d'?",
    "sac": "no agent is called 'sac'; expected t3d, td7, or your own module:Class",
    "nowhere_at_all:Agent": "no module 'nowhere_at_all' for agent 'nowhere_at_all:Agent'; looked",
    f"{ME}:Carefull": f"module '{ME}' has no agent 'Carefull'; did you mean 'Careful'?",
    f"{ME}:ME": "agent is str; expected a subclass of t3d.Agent",
    f"{ME}:Path": "agent is pathlib:Path; expected a subclass of t3d.Agent",
    f"{ME}:only_a_function": f"agent is {ME}:only_a_function; expected a subclass of t3d.Agent",
    f"{ME}:Agent": "agent is t3d.learn.agent:Agent; expected a subclass of t3d.Agent",
    f"{ME}:Empty": f"{ME}:Empty cannot build an agent: TypeError: Can't instantiate abstract",
    f"{ME}:Unfinished": f"{ME}:Unfinished cannot build an agent: ZeroDivisionError: nothing is",
    f"{ME}:Picky": f"agent {ME}:Picky cannot be used: it only learns on Sundays",
    f"{ME}:LooseParameter": "temperature of the agent would not be saved; hold parameters in a ",
    f"{ME}:LooseOptimizer": "slow of the agent would not be saved; make optimisers with self",
    f"{ME}:LooseNetworks": "ensemble of the agent would not be saved; hold networks in attr",
    f"{ME}:Late": "the state does not fit this agent: late.bias, late.weight ... missing or ",
    f"{ME}:Measures": "the agent could not be loaded: build must also work on PyTorch's meta",
    f"{ME}:Complex": "critic.phase has torch.complex64, which is not saved",
    f"{ME}:Flat": f"{ME}:Flat.select_action returned a ndarray of shape (1,) for 1 states;",
    f"{ME}:Listing": f"{ME}:Listing.value returned a list of shape (1,) for 1 states;",
    f"{ME}:ForgetfulT3D": "the state of a sampler has count; Forgetful has none",
    f"{ME}:Ignored": f"agent {ME}:Ignored cannot be used: fused is compiled and does not call",
    "__main__:Gone": "agent '__main__:Gone' was defined where it cannot be imported; from Python, ",
}


@pytest.mark.parametrize(("name", "message"), BAD.items())
def test_an_agent_that_cannot_be_used_is_refused_in_one_line(name: str, message: str) -> None:
    with pytest.raises(BadInput) as refusal:
        make_agent(Config(agent=name), *SPACES)
    assert str(refusal.value).startswith(message)
    assert "\n" not in str(refusal.value)


def test_a_class_that_is_no_agent_is_refused() -> None:
    with pytest.raises(BadInput, match=r"agent is pathlib:Path; expected a subclass of t3d\.Agent"):
        agent_name(Path)  # type: ignore[arg-type]


class Shaped(T3D):
    """Networks whose numbers are stored in unusual ways."""

    def build(self, weights: np.random.Generator) -> None:
        super().build(weights)
        self.eyes = nn.Conv2d(3, 4, 3)
        self.eyes.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.half = nn.Linear(3, 3).half()
        self.model_optimizer = self.make_optimizer(self.eyes)


def test_all_networks_of_an_own_agent_come_back_from_its_file(tmp_path: Path) -> None:
    agent, _ = make_agent(Config(hidden=(8,)), *SPACES, agent=Shaped)
    assert agent.networks.keys() > {"eyes", "half"}
    agent.save(tmp_path / "agent.safetensors")
    loaded = Shaped.load(tmp_path / "agent.safetensors")
    assert changed(agent.state_dict(), loaded.state_dict()) == set()


def test_the_seed_decides_what_pytorch_itself_draws_for_a_network() -> None:
    torch.manual_seed(1)
    one, _ = make_agent(Config(hidden=(8,), seed=3), *SPACES, agent=Shaped)
    before = torch.get_rng_state()
    other, _ = make_agent(Config(hidden=(8,), seed=3), *SPACES, agent=Shaped)
    assert changed(one.state_dict(), other.state_dict()) == set()
    assert torch.equal(torch.get_rng_state(), before)
    third, _ = make_agent(Config(hidden=(8,), seed=4), *SPACES, agent=Shaped)
    assert "eyes.weight" in changed(one.state_dict(), third.state_dict())


def test_a_body_that_cannot_be_built_is_refused_in_one_line() -> None:
    with pytest.raises(BadInput, match=f"^{ME}:only_a_function cannot build an agent: TypeError"):
        make_agent(Config(body=f"{ME}:only_a_function"), *SPACES)


def test_a_module_that_is_not_imported_is_not_imported_by_a_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "import t3d\nclass Mine(t3d.T3D):\n    pass\n"
    (tmp_path / "their_agents.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    name = "their_agents:Mine"
    t3d.train("Pendulum-v1", run="run", agent=name, quiet=True, **TINY)
    assert type(t3d.load("run")).__name__ == "Mine"
    monkeypatch.delitem(sys.modules, "their_agents")  # another process has not imported it
    with pytest.raises(BadInput, match=f"^agent '{name}' is not imported here; import its module"):
        t3d.load("run")
    assert "their_agents" not in sys.modules
    assert type(t3d.load("run", agent=Careful)) is Careful  # same networks
    assert len(t3d.evaluate("run", episodes=1).returns) == 1  # imports it, as the environment
    assert type(t3d.load("run")).__name__ == "Mine"


def test_a_run_with_an_own_agent_and_body_learns_by_them_and_resumes(tmp_path: Path) -> None:
    knobs = TINY | {"body": mlp, "preset": "default", "quiet": True}
    plain = t3d.train("Pendulum-v1", run=tmp_path / "plain", engine="reference", **knobs)
    own = t3d.train("Pendulum-v1", run=tmp_path / "own", agent=Careful, **knobs)
    assert isinstance(own, Careful)
    assert own.config.body == "t3d.learn.networks:mlp"
    last = [t3d.load(tmp_path / name, which="last") for name in ("plain", "own")]
    assert not np.array_equal(last[0].weights(), last[1].weights())
    more = t3d.resume(tmp_path / "own", steps=80, quiet=True)
    assert isinstance(more, Agent)
    assert isinstance(plain, T3D)
