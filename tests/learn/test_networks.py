"""The actor and the critics: shapes, ranges, first weights, and bodies."""

import math
import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from t3d import T3D, Actor, Config, Critic
from t3d.base.errors import BadInput
from t3d.learn.networks import Body, body_name, find_body, layer_norm, mlp

LOW, HIGH = (-1.0, 0.0, 5.0), (1.0, 0.25, 9.0)


def actor(seed: int = 0, hidden: tuple[int, ...] = (16, 8)) -> Actor:
    return Actor(4, LOW, HIGH, hidden, np.random.default_rng(seed))


def critic(seed: int = 0, hidden: tuple[int, ...] = (16, 8)) -> Critic:
    return Critic(4, LOW, HIGH, hidden, np.random.default_rng(seed))


def agent(seed: int = 0, **knobs: Any) -> T3D:
    return T3D(4, LOW, HIGH, Config(hidden=(16, 8), seed=seed, **knobs))


def normal(*shape: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(9).standard_normal(shape, np.float32))


def same(one: nn.Module, other: nn.Module) -> bool:
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def linear_shapes(layers: nn.Module) -> list[tuple[int, ...]]:
    return [tuple(layer.weight.shape) for layer in layers.modules() if isinstance(layer, nn.Linear)]


@pytest.mark.parametrize("rows", [1, 7])
def test_the_actor_gives_one_action_per_state(rows: int) -> None:
    assert actor()(normal(rows, 4)).shape == (rows, 3)


@pytest.mark.parametrize("rows", [1, 7])
def test_the_critic_gives_two_values_per_row(rows: int) -> None:
    values = critic()(normal(rows, 4), normal(rows, 3))
    assert [value.shape for value in values] == [(rows,), (rows,)]


@pytest.mark.parametrize("hidden", [(5,), (6, 7), (3, 4, 5)])
def test_the_hidden_layers_are_those_of_the_config(hidden: tuple[int, ...]) -> None:
    built = T3D(4, LOW, HIGH, Config(hidden=hidden))
    sizes = {"actor": (4, *hidden, 3), "twin": (4 + 3, *hidden, 1)}
    expected = {name: list(zip(s[1:], s[:-1])) for name, s in sizes.items()}
    for one in (built.actor, built.actor_target):
        assert linear_shapes(one.layers) == expected["actor"]
    for both in (built.critic, built.critic_target):
        assert linear_shapes(both.twin1) == linear_shapes(both.twin2) == expected["twin"]


def test_actor_and_critic_may_have_hidden_layers_of_their_own() -> None:
    built = agent(actor_hidden=(5,), critic_hidden=(6, 7))
    assert linear_shapes(built.actor_target.layers) == [(5, 4), (3, 5)]
    assert linear_shapes(built.critic.twin2) == [(6, 7), (7, 6), (1, 7)]
    one = agent(critic_hidden=(6,))
    assert linear_shapes(one.actor.layers) == linear_shapes(agent().actor.layers)
    assert linear_shapes(one.critic_target.twin1) == [(6, 7), (1, 6)]


@pytest.mark.parametrize(
    ("knobs", "actor", "critic"),
    [
        ({"activation": "elu"}, "Linear ELU Linear ELU Linear", None),
        ({"activation": "tanh"}, "Linear Tanh Linear Tanh Linear", None),
        (
            {"layer_norm": "critic"},
            "Linear ReLU Linear ReLU Linear",
            "Linear LayerNorm ReLU Linear LayerNorm ReLU Linear",
        ),
        (
            {"layer_norm": "both", "activation": "elu"},
            "Linear LayerNorm ELU Linear LayerNorm ELU Linear",
            None,
        ),
        (
            {"body": "layer_norm", "activation": "tanh"},
            "Linear LayerNorm Tanh Linear LayerNorm Tanh Linear",
            None,
        ),
    ],
)
def test_the_knobs_decide_what_stands_between_the_layers(
    knobs: dict[str, Any], actor: str, critic: str | None
) -> None:
    built = agent(**knobs)
    networks = built.actor.layers, built.critic.twin1, built.critic_target.twin2
    for network, expected in zip(networks, (actor, critic or actor, critic or actor)):
        assert " ".join(type(module).__name__ for module in network.children()) == expected


def test_the_knob_layer_norm_is_the_body_of_that_name() -> None:
    one, other = agent(body="layer_norm"), agent(layer_norm="both")
    for mine, theirs in zip(one.networks.values(), other.networks.values()):
        assert same(mine, theirs)


@pytest.mark.parametrize(("knob", "value"), [("activation", "elu"), ("layer_norm", "critic")])
def test_an_own_body_makes_its_layers_itself(knob: str, value: str) -> None:
    message = rf"^{knob} is {value}, but the body .*:wide makes its layers itself; leave {knob} at"
    knobs: dict[str, Any] = {"body": f"{__name__}:wide", knob: value}
    with pytest.raises(BadInput, match=message):
        agent(**knobs)


def by_hand(body: nn.Module, inputs: np.ndarray[Any, Any], norm: bool) -> np.ndarray[Any, Any]:
    """Linear layers with ReLU between, in NumPy; optionally with LayerNorm before each ReLU."""
    weights = [value.detach().double().numpy() for value in body.state_dict().values()]
    step = 4 if norm else 2
    for i in range(0, len(weights) - 2, step):
        inputs = inputs @ weights[i].T + weights[i + 1]
        if norm:
            centred = inputs - inputs.mean(axis=1, keepdims=True)
            inputs = centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5)
            inputs = inputs * weights[i + 2] + weights[i + 3]
        inputs = np.maximum(inputs, 0)
    outputs: np.ndarray[Any, Any] = inputs @ weights[-2].T + weights[-1]
    return outputs


@pytest.mark.parametrize(("body", "norm"), [(mlp, False), (layer_norm, True)])
def test_a_body_computes_what_numpy_does(body: Body, norm: bool) -> None:
    built = body((4, 16, 8, 1), np.random.default_rng(0), torch.float32)
    with torch.no_grad():
        for name, parameter in built.named_parameters():  # norms that are not 1 and 0
            parameter.add_(0.1 if name.endswith("weight") else 0.2)
    expected = by_hand(built, normal(6, 4).double().numpy(), norm)
    np.testing.assert_allclose(built(normal(6, 4)).detach(), expected, rtol=1e-4, atol=1e-5)


def wide(sizes: tuple[int, ...], stream: np.random.Generator, dtype: torch.dtype) -> nn.Module:
    """A body of a test's own: twice as many units."""
    return mlp((sizes[0], *(2 * size for size in sizes[1:-1]), sizes[-1]), stream, dtype)


def test_the_knob_body_decides_the_layers_of_all_networks() -> None:
    plain, normed, own = (agent(body=name) for name in ("mlp", "layer_norm", f"{__name__}:wide"))
    for name, network in normed.networks.items():
        kinds = [type(module) for module in network.modules()]
        assert kinds.count(nn.LayerNorm) == 2 * (2 if "critic" in name else 1)
        assert nn.LayerNorm not in [type(m) for m in plain.networks[name].modules()]
    assert linear_shapes(own.actor.layers) == [(32, 4), (16, 32), (3, 16)]
    assert linear_shapes(own.critic_target.twin2) == [(32, 7), (16, 32), (1, 16)]


def test_bodies_start_from_the_same_stream() -> None:
    plain, normed = agent(body="mlp"), agent(body="layer_norm")
    for one, other in zip(plain.networks.values(), normed.networks.values()):
        weights = [
            [layer.weight for layer in network.modules() if isinstance(layer, nn.Linear)]
            for network in (one, other)
        ]
        assert all(torch.equal(a, b) for a, b in zip(*weights, strict=True))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("layernorm", "no network body is called 'layernorm'; did you mean 'layer_norm'?"),
        ("resnet", "no network body is called 'resnet'; your own goes as module:callable"),
        ("nowhere_at_all:body", "no module 'nowhere_at_all' for network body 'nowhere_at_all:bo"),
        (f"{__name__}:wied", f"module '{__name__}' has no network body 'wied'; did you mean 'wide"),
        (f"{__name__}:LOW", f"module '{__name__}' has no network body 'LOW'"),
        ("__main__:gone", "network body '__main__:gone' was defined where it cannot be imported"),
    ],
)
def test_a_body_that_is_not_there_is_refused_in_one_line(name: str, message: str) -> None:
    with pytest.raises(BadInput) as refusal:
        find_body(name)
    assert str(refusal.value).startswith(message)
    assert "\n" not in str(refusal.value)


def test_without_importing_only_bodies_that_were_used_are_found() -> None:
    def mine(sizes: tuple[int, ...], stream: np.random.Generator, dtype: torch.dtype) -> nn.Module:
        return mlp(sizes, stream, dtype)

    name = f"{__name__}:test_without_importing_only_bodies_that_were_used_are_found.<locals>.mine"
    with pytest.raises(BadInput, match="is not imported, and no file may do that"):
        find_body(name, importing=False)
    assert body_name(mine) == name
    assert find_body(name, importing=False) is mine
    assert body_name("mlp") == "mlp"
    with pytest.raises(BadInput, match="body is a int; expected a name or a callable"):
        body_name(5)  # type: ignore[arg-type]


def test_the_actor_stays_in_lopsided_bounds_for_huge_states() -> None:
    low, high = torch.tensor(LOW), torch.tensor(HIGH)
    actions = actor()(normal(500, 4) * 1e6)
    hair = 1e-6 * (high - low)  # what rounding may add
    assert bool(((actions >= low - hair) & (actions <= high + hair)).all())
    # Huge states drive tanh to its ends: the whole of each range is used.
    torch.testing.assert_close(actions.amin(0), low)
    torch.testing.assert_close(actions.amax(0), high)


def test_an_actor_whose_layers_give_zero_plays_the_middle_of_the_range() -> None:
    built = actor()
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.zero_()
    assert built(normal(1, 4)).tolist() == [[0.0, 0.125, 7.0]]


def test_the_twins_start_from_different_weights() -> None:
    built = critic()
    for one, other in zip(built.twin1.parameters(), built.twin2.parameters()):
        assert not bool((one == other).any())


def test_q1_is_the_first_of_both_values() -> None:
    built, state, action = critic(), normal(6, 4), normal(6, 3)
    first, second = built(state, action)
    assert torch.equal(built.Q1(state, action), first)
    assert not torch.equal(first, second)


def test_targets_start_as_copies_and_are_objects_of_their_own() -> None:
    built = agent()
    pairs = [(built.actor, built.actor_target), (built.critic, built.critic_target)]
    for model, target in pairs:
        assert same(model, target)
        models = {parameter.data_ptr() for parameter in model.parameters()}
        assert models.isdisjoint(parameter.data_ptr() for parameter in target.parameters())


def global_generators() -> list[Any]:
    legacy = np.random.get_state(legacy=False)["state"]  # noqa: NPY002
    torchs = torch.random.get_rng_state().tolist()
    return [torchs, random.getstate(), legacy["key"].tolist(), legacy["pos"]]


def test_building_an_agent_leaves_the_global_generators_alone() -> None:
    before = global_generators()
    agent()
    assert global_generators() == before


def test_the_global_generators_do_not_decide_the_weights() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        first = agent()
        torch.manual_seed(2)
        assert same(first.actor, agent().actor)
        assert same(first.critic, agent().critic)


def test_the_seed_decides_the_weights() -> None:
    first, again, other = agent(5), agent(5), agent(6)
    for name in ("actor", "critic"):
        assert same(getattr(first, name), getattr(again, name))
        assert not same(getattr(first, name), getattr(other, name))


@torch.no_grad()
def test_weights_start_uniform_in_one_over_the_root_of_the_inputs() -> None:
    first, _, second, *_ = actor(hidden=(400, 300)).layers.children()
    for layer, inputs in ((first, 4), (second, 400)):
        bound = 1 / math.sqrt(inputs)
        for parameter in layer.parameters():
            # Hundreds of uniform numbers come near both ends, and have this deviation.
            assert 0.98 * bound < float(parameter.max()) <= bound
            assert 0.98 * bound < -float(parameter.min()) <= bound
            assert float(parameter.std()) == pytest.approx(bound / math.sqrt(3), rel=0.1)


def test_units_make_no_difference_to_the_critic() -> None:
    # The same actions in units a thousand times smaller, and with a shifted zero.
    plain, scaled, shifted = (
        T3D(4, low, high, Config(hidden=(16, 8)), dtype=torch.float64)
        for low, high in (([-1, -1], [1, 1]), ([-1000, -1000], [1000, 1000]), ([4, 4], [6, 6]))
    )
    state, action = normal(8, 4).double(), normal(8, 2).double()
    values = torch.stack(plain.critic(state, action))
    torch.testing.assert_close(torch.stack(scaled.critic(state, action * 1000)), values)
    torch.testing.assert_close(torch.stack(shifted.critic(state, action + 5)), values)
    torch.testing.assert_close(scaled.actor(state), plain.actor(state) * 1000)
    torch.testing.assert_close(shifted.actor(state), plain.actor(state) + 5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_all_tensors_have_the_chosen_precision(dtype: torch.dtype) -> None:
    built = T3D(4, LOW, HIGH, Config(hidden=(5,)), dtype=dtype)
    for module in (built.actor, built.critic, built.actor_target, built.critic_target):
        tensors = [*module.parameters(), *module.buffers()]
        assert {tensor.dtype for tensor in tensors} == {dtype}


def normalised(
    sizes: tuple[int, ...], stream: np.random.Generator, dtype: torch.dtype
) -> nn.Module:
    """Cannot compute one row alone."""
    return nn.Sequential(mlp(sizes[:-1], stream, dtype), nn.BatchNorm1d(sizes[-2], dtype=dtype))


def too_wide(sizes: tuple[int, ...], stream: np.random.Generator, dtype: torch.dtype) -> nn.Module:
    return mlp((*sizes[:-1], sizes[-1] + 1), stream, dtype)


def narrow(sizes: tuple[int, ...], stream: np.random.Generator, dtype: torch.dtype) -> nn.Module:
    return mlp((*sizes[:-1], 1), stream, dtype)


def double(sizes: tuple[int, ...], stream: np.random.Generator, dtype: torch.dtype) -> nn.Module:
    return mlp(sizes, stream, torch.float64)


def no_module(sizes: tuple[int, ...], stream: np.random.Generator, dtype: torch.dtype) -> Any:
    return [1.0]


BAD_BODIES: dict[Any, str] = {
    normalised: r":normalised cannot compute 1 x 3 numbers of torch.float32: ValueError: Expected",
    too_wide: r":too_wide makes torch.float32 of shape \(1, 3\) from 1 x 3 numbers; expected 2",
    narrow: r":narrow makes torch.float32 of shape \(1, 1\) from 1 x 3 numbers; expected 2",
    double: r":double cannot compute 1 x 3 numbers of torch.float32: RuntimeError: ",
    no_module: r":no_module returned a list, no nn\.Module",
}


@pytest.mark.parametrize(("body", "message"), BAD_BODIES.items())
def test_a_body_whose_outputs_do_not_fit_is_refused_in_one_line(body: Any, message: str) -> None:
    with pytest.raises(BadInput, match=f"^network body .*{message}") as refusal:
        Actor(3, LOW[:2], HIGH[:2], (8, 8), np.random.default_rng(0), body=body)
    assert "\n" not in str(refusal.value)
