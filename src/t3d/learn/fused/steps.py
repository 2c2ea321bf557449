"""The formulas of one transition: how a batch is drawn and seen, and steps 6, 8, 9, 11 and 13.

Each function applies its formula to the panels of a `Share`. The last panel may have fewer
transitions than lanes. Formulas leave its other lanes alone: their gradients stay 0.
"""

import math
from typing import Any, NamedTuple

from t3d.base.compiling import compiled
from t3d.base.numbers import Array
from t3d.learn.fused.plan import (
    ACTOR_LOSS,
    MEAN_Q,
    TWIN1_LOSS,
    Bounds,
    Draw,
    Knobs,
    Memory,
    Scaling,
    Scratch,
)
from t3d.learn.fused.vectors import LANES
from t3d.learn.replay.sampling import walk


class Share(NamedTuple):
    """The panels of one thread, or of one task."""

    me: int  # which of so many
    team: int
    first: int  # panel of mine
    last: int  # one after the last
    rows: int  # transitions in the batch
    panels: Array  # all of them


@compiled
def share(panels: Array, rows: int, me: int, team: int) -> Share:
    """Divide the panels among a team."""
    first, last = me * len(panels) // team, (me + 1) * len(panels) // team
    return Share(me, team, first, last, rows, panels)


@compiled
def filled(my: Share, p: int) -> int:
    """How many transitions a panel has."""
    return min(LANES, my.rows - p * LANES)


@compiled
def lanes(numbers: Array, p: int) -> Array:
    """Of an array with one number per transition: those of a panel."""
    return numbers[p * LANES : (p + 1) * LANES]


@compiled
def units(panel: Array, layer: Any) -> Array:
    """The outputs of a layer: (outs, lanes)."""
    return panel[layer.unit : layer.unit + layer.outs]


@compiled
def grads(panel: Array, layer: Any) -> Array:
    """The gradient of the loss by each output of a layer: (outs, lanes)."""
    return panel[layer.grad : layer.grad + layer.outs]


@compiled
def standard(panel: Array, layer: Any) -> Array:
    """The outputs of a layer after its LayerNorm, before gains and biases: (outs, lanes)."""
    return panel[layer.normed : layer.normed + layer.outs]


@compiled
def norm_grads(panel: Array, layer: Any) -> Array:
    """The gradient of the loss by each output of a layer's LayerNorm: (outs, lanes)."""
    return panel[layer.normed + layer.outs : layer.normed + 2 * layer.outs]


@compiled
def inverse_std(panel: Array, layer: Any) -> Array:
    """What a layer's LayerNorm multiplies by: (1, lanes)."""
    return panel[layer.normed + 2 * layer.outs : layer.normed + 2 * layer.outs + 1]


@compiled
def divisor(panel: Array, layer: Any) -> Array:
    """What AvgL1Norm has divided the outputs of a layer by: (1, lanes)."""
    return panel[layer.normed : layer.normed + 1]


n_step_walk = compiled(walk)  # the function that the replay memory calls, too


@compiled
def follow(memory: Memory, batch: Draw, knobs: Knobs, my: Share) -> None:
    """Step 4: follow each row for n steps, or to the end of its episode."""
    kind = knobs.discounts.dtype.type
    mine = slice(my.first * LANES, min(my.last * LANES, my.rows))
    ends, rewards, discounts = batch.ends[mine], batch.rewards[mine], batch.discounts[mine]
    steps = batch.steps[mine]
    reach = knobs.discounts[:-1]
    n_step_walk(batch.rows[mine], memory.next_at, memory.reward, reach, ends, rewards, steps)
    for i in range(ends.size):
        last = ends[i]
        ends[i] = memory.next_at[last]
        rewards[i] *= kind(knobs.reward_scale)
        discounts[i] = (kind(1) - memory.done[last]) * knobs.discounts[steps[i]]


@compiled
def gather(store: Array, rows: Array, section: int, my: Share) -> None:
    """Step 4: copy rows of the memory into lanes of panels."""
    for p in range(my.first, my.last):
        source, to = lanes(rows, p), my.panels[p, section:]
        for i in range(store.shape[1]):
            for lane in range(source.size):
                to[i, lane] = store[source[lane], i]


@compiled
def normalized(number: Any, scaling: Scaling, i: int) -> Any:
    """One number of a state, as the networks see it."""
    limit = scaling.limit[i]
    return min(max((number - scaling.shift[i]) * scaling.scale[i], -limit), limit)


@compiled
def to_action(x: Array, bounds: Bounds) -> Array:
    """The actor's outputs for one state, in place, as an action in the environment's units."""
    for i in range(x.size):
        action = bounds.middle[i] + bounds.max_action[i] * math.tanh(x[i])
        x[i] = min(max(action, bounds.low[i]), bounds.high[i])
    return x


@compiled
def normalize(section: int, scaling: Scaling, my: Share) -> None:
    """Step 4: states as the networks see them."""
    for p in range(my.first, my.last):
        for i in range(scaling.shift.size):
            numbers = my.panels[p, section + i, : filled(my, p)]
            for lane in range(numbers.size):
                numbers[lane] = normalized(numbers[lane], scaling, i)


@compiled
def scale_actions(section: int, bounds: Bounds, my: Share) -> None:
    """Step 4: actions as the critic sees them, -1 to 1."""
    for p in range(my.first, my.last):
        for i in range(bounds.middle.size):
            numbers = my.panels[p, section + i, : filled(my, p)]
            for lane in range(numbers.size):
                numbers[lane] = (numbers[lane] - bounds.middle[i]) / bounds.max_action[i]


@compiled
def smooth(
    actor: Array, noises: Array, section: int, knobs: Knobs, bounds: Bounds, my: Share
) -> None:
    """Step 6, and the next action as the critic sees it."""
    kind = my.panels.dtype.type
    policy_noise, noise_clip = kind(knobs.policy_noise), kind(knobs.noise_clip)
    for p in range(my.first, my.last):
        panel = my.panels[p]
        outputs = units(panel, actor[-1])
        for i in range(len(outputs)):
            low, high = bounds.low[i], bounds.high[i]
            middle, max_action = bounds.middle[i], bounds.max_action[i]
            output, next_action = outputs[i], panel[section + i]
            for lane in range(filled(my, p)):
                noise = kind(noises[p * LANES + lane, i]) * policy_noise
                noise = min(max(noise, -noise_clip), noise_clip)
                action = middle + max_action * math.tanh(output[lane])
                action = min(max(action + noise * max_action, low), high)
                next_action[lane] = (action - middle) / max_action


@compiled
def bellman(twins: tuple[Array, Array], batch: Draw, section: int, my: Share) -> None:
    """Steps 8 and 9; where an episode terminated, the discount is 0."""
    for p in range(my.first, my.last):
        panel = my.panels[p]
        Q1, Q2, target = (
            units(panel, twins[0][-1])[0],
            units(panel, twins[1][-1])[0],
            panel[section],
        )
        reward, discount = lanes(batch.rewards, p), lanes(batch.discounts, p)
        for lane in range(reward.size):
            target[lane] = reward[lane] + discount[lane] * _smaller(Q1[lane], Q2[lane])


@compiled
def _smaller(one: Any, two: Any) -> Any:
    return one if one < two or one != one else two  # nan if either is, as in PyTorch


@compiled
def critic_loss(
    network: Array, twin: int, section: int, batch: Draw, huber: bool, measures: Array, my: Share
) -> None:
    """Step 11: loss = the mean of (Q - target)^2, so its gradient is 2 (Q - target) / rows."""
    kind = my.panels.dtype.type
    rows = kind(my.rows)
    for p in range(my.first, my.last):
        panel = my.panels[p]
        Q, gradient = units(panel, network[-1])[0], grads(panel, network[-1])[0]
        target, td_error = panel[section], lanes(batch.td_errors[twin], p)
        loss, total = kind(0), kind(0)
        for lane in range(td_error.size):
            error = Q[lane] - target[lane]
            td_error[lane] = abs(error)
            total += Q[lane]
            if not huber:
                gradient[lane] = 2 * error / rows
                loss += error * error
            elif td_error[lane] > 1:
                gradient[lane] = math.copysign(kind(1), error) / rows
                loss += td_error[lane] - kind(0.5)
            else:  # half of the square
                gradient[lane] = error / rows
                loss += kind(0.5) * error * error
        measures[p, TWIN1_LOSS + twin] = loss / rows
        if twin == 0:
            measures[p, MEAN_Q] = total / rows


@compiled
def act(actor: Array, section: int, bounds: Bounds, my: Share) -> None:
    """Step 13: the actor's own action takes the place of the one that was played."""
    for p in range(my.first, my.last):
        panel = my.panels[p]
        outputs = units(panel, actor[-1])
        for i in range(len(outputs)):
            middle, max_action = bounds.middle[i], bounds.max_action[i]
            output, numbers = outputs[i], panel[section + i]
            for lane in range(filled(my, p)):
                output[lane] = math.tanh(output[lane])
                action = middle + max_action * output[lane]
                numbers[lane] = (action - middle) / max_action


@compiled
def actor_loss(critic: Array, measures: Array, my: Share) -> None:
    """Step 13: loss = - the mean of Q1, so its gradient is -1 / rows."""
    kind = my.panels.dtype.type
    rows = kind(my.rows)
    for p in range(my.first, my.last):
        panel = my.panels[p]
        Q, gradient = units(panel, critic[-1])[0], grads(panel, critic[-1])[0]
        loss = kind(0)
        for lane in range(filled(my, p)):
            loss -= Q[lane]
            gradient[lane] = -1 / rows
        measures[p, ACTOR_LOSS] = loss / rows


@compiled
def through_tanh(actor: Array, my: Share) -> None:
    """Step 13: from the gradient by the action to that by the outputs of the actor's last layer."""
    for p in range(my.first, my.last):
        panel = my.panels[p]
        outputs, gradients = units(panel, actor[-1]), grads(panel, actor[-1])
        for i in range(len(outputs)):
            output, gradient = outputs[i], gradients[i]  # the output is that of the tanh by now
            for lane in range(filled(my, p)):
                gradient[lane] *= 1 - output[lane] * output[lane]


@compiled
def total_measures(scratch: Scratch) -> None:
    """The losses and the mean of Q1: the sums of the parts of all panels."""
    scratch.totals[:] = 0
    for p in range(len(scratch.measures)):
        for i in range(scratch.totals.size):
            scratch.totals[i] += scratch.measures[p, i]
