"""The formulas that TD7 adds: steps A to D, and steps 8, 9 and 13 as it changes them."""

from typing import Any

from t3d.base.compiling import compiled
from t3d.base.numbers import Array
from t3d.learn.fused.layers import weight_of
from t3d.learn.fused.plan import ACTOR_LOSS, Draw
from t3d.learn.fused.steps import Share, divisor, filled, grads, lanes, units
from t3d.learn.fused.td7.plan import ENCODER_LOSS, LARGEST, LEAST, Networks
from t3d.learn.fused.tiles import add_product, product
from t3d.learn.fused.units import back_through_avg_l1_norm


@compiled
def copy_rows(source: int, to: int, count: int, my: Share) -> None:
    """Copy some rows of my panels to other rows."""
    for p in range(my.first, my.last):
        panel = my.panels[p]
        for i in range(count):
            panel[to + i] = panel[source + i]


@compiled
def place_action(nets: Networks, action: int, my: Share) -> None:
    """Put actions beside the embeddings of states, as the inputs of g."""
    last = nets.f[-1]
    copy_rows(action, last.unit + last.outs, nets.g[0].ins - last.outs, my)


@compiled
def place_zs(nets: Networks, my: Share) -> None:
    """Put the embeddings of states into the inputs of the actor and of both twins."""
    last, actor, twin1, twin2 = nets.f[-1], nets.actor[0], nets.twin1[0], nets.twin2[0]
    copy_rows(last.unit, actor.unit + actor.outs, last.outs, my)
    copy_rows(last.unit, twin1.unit + twin1.outs + last.outs, last.outs, my)
    copy_rows(last.unit, twin2.unit + twin2.outs + last.outs, last.outs, my)


@compiled
def place_zsa(nets: Networks, my: Share) -> None:
    """Put the embeddings of states and actions into the inputs of both twins."""
    last, twin1, twin2 = nets.g[-1], nets.twin1[0], nets.twin2[0]
    copy_rows(last.unit, twin1.unit + twin1.outs, last.outs, my)
    copy_rows(last.unit, twin2.unit + twin2.outs, last.outs, my)


@compiled
def encoder_loss(g: Array, next_zs: int, measures: Array, my: Share) -> None:
    """Step A: loss = the mean of (zsa - next_zs)^2 over the batch and all units."""
    kind = my.panels.dtype.type
    count = kind(my.rows * g[-1].outs)
    for p in range(my.first, my.last):
        panel = my.panels[p]
        outputs, gradients = units(panel, g[-1]), grads(panel, g[-1])
        loss = kind(0)
        for i in range(len(outputs)):
            output, expected, gradient = outputs[i], panel[next_zs + i], gradients[i]
            for lane in range(filled(my, p)):
                error = output[lane] - expected[lane]
                gradient[lane] = 2 * error / count
                loss += error * error
        measures[p, ENCODER_LOSS] = loss / count


@compiled
def backward_to_zs(parameters: Array, f: Array, g: Array, my: Share) -> None:
    """Step B: from the gradient by g's first layer to that by f's last one."""
    layer, last = g[0], f[-1]
    weight = weight_of(parameters, layer)
    for p in range(my.first, my.last):
        panel = my.panels[p]
        # The product has as many rows as zs has units: the action's are left out.
        product(grads(panel, last), weight.T, grads(panel, layer))
        back_through_avg_l1_norm(grads(panel, last), units(panel, last), divisor(panel, last))


@compiled
def bellman(
    nets: Networks, batch: Draw, limits: Array, section: int, measures: Array, my: Share
) -> None:
    """Steps 8 and 9, with values inside of the limits."""
    for p in range(my.first, my.last):
        panel = my.panels[p]
        Q1, Q2 = units(panel, nets.twin1[-1])[0], units(panel, nets.twin2[-1])[0]
        target = panel[section]
        reward, discount = lanes(batch.rewards, p), lanes(batch.discounts, p)
        for lane in range(reward.size):
            smaller = _clipped(_smaller(Q1[lane], Q2[lane]), limits)
            target[lane] = reward[lane] + discount[lane] * smaller
        least, largest = target[0], target[0]
        for lane in range(1, reward.size):
            least, largest = min(least, target[lane]), max(largest, target[lane])
        measures[p, LEAST], measures[p, LARGEST] = least, largest


@compiled
def _smaller(one: Any, two: Any) -> Any:
    return one if one < two or one != one else two  # nan if either is, as in PyTorch


@compiled
def _clipped(value: Any, limits: Array) -> Any:
    """A value inside of the limits; a nan stays."""
    value = limits[0] if value < limits[0] else value
    return limits[1] if value > limits[1] else value


@compiled
def actor_loss(nets: Networks, measures: Array, my: Share) -> None:
    """Step 13: loss = - the mean of both Q, so the gradient by each is - 1/2 / rows."""
    kind = my.panels.dtype.type
    rows = kind(2 * my.rows)
    for p in range(my.first, my.last):
        panel = my.panels[p]
        one, two = nets.twin1[-1], nets.twin2[-1]
        Q1, Q2 = units(panel, one)[0], units(panel, two)[0]
        by_Q1, by_Q2 = grads(panel, one)[0], grads(panel, two)[0]
        loss = kind(0)
        for lane in range(filled(my, p)):
            loss -= Q1[lane] + Q2[lane]
            by_Q1[lane] = -1 / rows
            by_Q2[lane] = -1 / rows
        measures[p, ACTOR_LOSS] = loss / rows


@compiled
def backward_to_zsa(parameters: Array, nets: Networks, my: Share) -> None:
    """Step 13: from the gradients by both twins' second layers to that by zsa."""
    first1, first2, layer1, layer2 = nets.twin1[0], nets.twin2[0], nets.twin1[1], nets.twin2[1]
    weight1 = weight_of(parameters, layer1)[:, first1.outs :]
    weight2 = weight_of(parameters, layer2)[:, first2.outs :]
    for p in range(my.first, my.last):
        panel = my.panels[p]
        by_zsa = grads(panel, nets.g[-1])
        product(by_zsa, weight1.T, grads(panel, layer1))
        add_product(by_zsa, weight2.T, grads(panel, layer2))


@compiled
def backward_to_action(parameters: Array, fixed: Array, nets: Networks, my: Share) -> None:
    """Step 13: the gradient by the action: through both twins directly, and through g."""
    one, two, g, outs = nets.twin1[0], nets.twin2[0], nets.g[0], nets.actor[-1].outs
    weight1 = weight_of(parameters, one)[:, one.ins - outs :]
    weight2 = weight_of(parameters, two)[:, two.ins - outs :]
    weight3 = weight_of(fixed, g)[:, g.ins - outs :]
    for p in range(my.first, my.last):
        panel = my.panels[p]
        by_action = grads(panel, nets.actor[-1])
        product(by_action, weight1.T, grads(panel, one))
        add_product(by_action, weight2.T, grads(panel, two))
        add_product(by_action, weight3.T, grads(panel, g))


@compiled
def total_measures(measures: Array, totals: Array) -> None:
    """The sums of the parts of all panels, and the least and the largest target."""
    totals[:] = 0
    totals[LEAST], totals[LARGEST] = measures[0, LEAST], measures[0, LARGEST]
    for p in range(len(measures)):
        for i in range(LEAST):
            totals[i] += measures[p, i]
        totals[LEAST] = min(totals[LEAST], measures[p, LEAST])
        totals[LARGEST] = max(totals[LARGEST], measures[p, LARGEST])
