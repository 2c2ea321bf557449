"""Where everything is: every place belongs to one thing only."""

import itertools
from collections.abc import Iterable

import numpy as np
import pytest

from t3d import Config
from t3d.learn.fused.plan import AVG_L1, Plan, lay_out
from t3d.learn.fused.td7 import plan as td7
from t3d.learn.fused.vectors import LANES

Region = tuple[int, int]  # where it begins, and its length
PANELS = 2


@pytest.fixture(
    params=[((9,), (7, 33)), ((7, 33), (7, 33)), ((50, 60, 70), (7, 33)), ((4,), (1,))],
    ids=["smaller actor", "equal", "larger actor", "one unit"],
)
def plan(request: pytest.FixtureRequest) -> Plan:
    """Actors and twins of several sizes."""
    actor, critic = request.param
    config = Config(actor_hidden=actor, critic_hidden=critic, layer_norm="both")
    return lay_out(state_dim=5, action_dim=3, config=config, panels=PANELS)


def overlap(regions: Iterable[Region], size: int) -> bool:
    """Fill every region with its own number; look whether all numbers are still there."""
    regions = list(regions)
    array = np.full(size, -1)
    for number, (start, length) in enumerate(regions):
        assert start + length <= size
        array[start : start + length] = number
    return not all(
        (array[start : start + length] == number).all()
        for number, (start, length) in enumerate(regions)
    )


def panel_regions(plan: Plan) -> list[Region]:
    lengths = 5, 3, 5, 3, 1
    layers = np.concatenate(plan.networks)
    units = [(int(row), int(n)) for row, n in zip(layers["unit"], layers["outs"])]
    grads = [(int(row), int(n)) for row, n in zip(layers["grad"], layers["outs"])]
    norms = [(int(x["normed"]), 2 * int(x["outs"]) + 1) for x in layers if x["norm"] >= 0]
    assert len(norms) == len(layers) - 3  # all but each network's last
    return [*zip(plan.sections[:5], lengths), *units, *grads, *norms]


def flat_regions(plan: Plan | td7.Plan, weight: str, bias: str, width: str) -> list[Region]:
    """Weights and biases, and those of LayerNorms, which follow the biases."""
    layers = np.concatenate(plan.networks)
    weights = zip(layers[weight], layers["outs"] * layers[width])
    biases = zip(layers[bias], layers["outs"] * np.where(layers["norm"] >= 0, 3, 1))
    return [(int(at), int(n)) for at, n in [*weights, *biases]]


def test_no_two_places_of_a_panel_overlap(plan: Plan) -> None:
    assert not overlap(panel_regions(plan), plan.sizes.panel)


def test_no_two_layers_share_parameters_and_none_is_left_over(plan: Plan) -> None:
    regions = flat_regions(plan, "weight", "bias", "ins")
    count = sum(length for _, length in regions)
    assert not overlap(regions, count)


def test_a_norm_follows_the_biases_of_its_layer(plan: Plan) -> None:
    for layer in np.concatenate(plan.networks):
        assert layer["norm"] in (-1, layer["bias"] + layer["outs"])


def test_no_two_layers_share_squares(plan: Plan) -> None:
    layers = np.concatenate(plan.networks)
    regions = [(int(at), int(n)) for at, n in zip(layers["square"], layers["outs"])]
    assert not overlap(regions, plan.sizes.outputs)


def test_no_two_layers_share_gradients(plan: Plan) -> None:
    assert not overlap(
        flat_regions(plan, "gradient", "bias_gradient", "width"), plan.sizes.gradients
    )


def test_the_twins_do_not_share_their_transposed_inputs(plan: Plan) -> None:
    for networks in (plan.networks[1:], plan.networks[:1]):
        layers = np.concatenate(networks)
        layers = layers[layers["transposed"] >= 0]
        regions = zip(layers["transposed"], layers["width"] * PANELS * LANES)
        assert not overlap([(int(at), int(n)) for at, n in regions], plan.sizes.transposed)


def test_a_panel_has_room_for_sixteen_rows_from_any_input_on(plan: Plan) -> None:
    """Inputs are transposed sixteen rows at a time, and take the rows behind them along."""
    for network in plan.networks:
        starts = [plan.sections.state, *network["unit"][:-1]]
        for start, layer in zip(starts, network):
            assert start + layer["width"] <= plan.sizes.panel


@pytest.mark.parametrize("hidden", [(4,), (7, 33), (16, 16, 16)])
def test_layers_follow_each_other(hidden: tuple[int, ...]) -> None:
    plan = lay_out(5, 3, Config(hidden=hidden), PANELS)
    for network, (ins, outs) in zip(plan.networks, [(5, 3), (8, 1), (8, 1)]):
        sizes = [ins, *hidden, outs]
        pairs = [(int(layer["ins"]), int(layer["outs"])) for layer in network]
        assert pairs == list(itertools.pairwise(sizes))
        assert all(layer["width"] % LANES == 0 for layer in network)
        assert all(0 <= layer["width"] - layer["ins"] < LANES for layer in network)


@pytest.fixture(
    params=[((9,), (7, 33), (8,)), ((50, 60, 70), (33,), (5, 40)), ((4,), (1,), (1,))],
    ids=["small", "larger actor", "one unit"],
)
def td7_plan(request: pytest.FixtureRequest) -> td7.Plan:
    """TD7's networks, of several sizes."""
    actor, critic, encoder = request.param
    config = Config(actor_hidden=actor, critic_hidden=critic, encoder_hidden=encoder, embedding=6)
    return td7.lay_out(state_dim=5, action_dim=3, config=config, panels=PANELS)


def test_no_two_places_of_td7_overlap(td7_plan: td7.Plan) -> None:
    layers, sizes = np.concatenate(td7_plan.networks), td7_plan.sizes
    # Beside the outputs of these layers there is room for actions or embeddings.
    f, g, actor, twin1, twin2 = td7_plan.networks
    beside = {int(f[-1]["unit"]): 3, int(actor[0]["unit"]): 6}
    beside |= {int(twin[0]["unit"]): 12 for twin in (twin1, twin2)}
    units = [(int(x["unit"]), int(x["outs"]) + beside.get(int(x["unit"]), 0)) for x in layers]
    grads = [(int(x["grad"]), int(x["outs"])) for x in layers]
    divisors = [(int(x["normed"]), 1) for x in layers if x["activation"] == AVG_L1]
    assert len(divisors) == 4
    sections = [*zip(td7_plan.sections[:6], (5, 3, 5, 3, 1, 6))]
    assert not overlap([*sections, *units, *grads, *divisors], sizes.panel)
    for name, size, width in (("weight", None, "ins"), ("gradient", sizes.gradients, "width")):
        bias = "bias" if name == "weight" else "bias_gradient"
        regions = flat_regions(td7_plan, name, bias, width)
        total = sum(length for _, length in regions)
        assert not overlap(regions, size or total)
    # The encoder and both twins learn at the same time; the actor learns when the twins have.
    for networks in ((f, g, twin1, twin2), (f, g, actor)):
        learning = np.concatenate(networks)
        learning = learning[learning["transposed"] >= 0]
        regions = [(int(x["transposed"]), int(x["width"]) * PANELS * LANES) for x in learning]
        assert not overlap(regions, sizes.transposed)


def test_all_inputs_of_td7s_encoder_are_transposed(td7_plan: td7.Plan) -> None:
    """It embeds other states before its gradients are taken: no input stays where it is."""
    for network in td7_plan.networks[:2]:
        assert (network["transposed"] >= 0).all()


def test_the_inputs_of_td7s_layers_stand_together(td7_plan: td7.Plan) -> None:
    f, g, actor, twin1, twin2 = td7_plan.networks
    assert g[0]["ins"] == f[-1]["outs"] + 3
    assert actor[1]["ins"] == actor[0]["outs"] + 6
    for twin in (twin1, twin2):
        assert twin[0]["ins"] == 5 + 3
        assert twin[1]["ins"] == twin[0]["outs"] + 2 * 6
