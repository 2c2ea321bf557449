"""Steps 4 to 15 once more, fused for the CPU: the numbers of t3d.py, several times faster.

The same update with the gradients worked out by hand, compiled by Numba. Nothing is
allocated, nothing is dispatched layer by layer, and the work stays in the caches: the batch
is cut into panels of sixteen transitions, and each goes through whole networks (tiles.py).

Threads share the panels, then the rows of the gradients, and meet in between (team.py).
Which thread computes a number does not change the number: any team gives the same bits.
Who owns the arrays, and where in them things are, is in fused_agent.py.
"""

import hashlib
import inspect
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from t3d.base import compiling
from t3d.base.compiling import compiled, entry
from t3d.base.numbers import Array
from t3d.learn.fused.threads import call, close, meet, take, wait_for_call
from t3d.learn.fused.tiles import (
    HEIGHT,
    LANES,
    add_product,
    back,
    back_to_inputs,
    dot,
    gradient,
    layer,
    padded,
    turn,
)
from t3d.learn.replay import sampling

# The networks, and what the plan says of each of their layers.
ACTOR, TWIN1, TWIN2 = range(3)
INS, OUTS = range(2)  # its size
WEIGHT, GRADIENT = range(2, 4)  # where its weights, and their gradients, begin; biases follow
UNIT, SLOPE = range(4, 6)  # where in a panel its outputs, and their slopes, begin
TURNED = 6  # where its inputs begin, turned
PIECES = 4  # that steps 4 to 9 are cut into, per thread


class Job(NamedTuple):
    """All that an update reads and writes. Arrays are flat unless a shape is given."""

    board: Array  # where the threads meet
    turn: Array  # (3,): Adam's steps of critic and actor, and whether the actor is due
    parts: Array  # (panels, 4): what each adds to the twins' losses, the actor's, and mean Q1
    measured: Array  # (4,): their sums

    observation: Array  # (places, state_dim): the memory
    next_at: Array  # (capacity,): where in it each row leads to
    action: Array
    reward: Array
    done: Array
    from_memory: Array  # (1,): 1 if just `rows` is given; 0 if `ends`, `sums` and `weights` are too
    rows: Array  # (batch,): the rows, and states, to learn from
    steps: Array  # (batch,): how many steps each takes together
    ends: Array  # (batch,): the states that these led to
    sums: Array  # (batch,): and their rewards on the way
    weights: Array  # (batch,): of the next states' values
    noise: Array  # (batch, action_dim): standard normal, for step 6

    shift: Array  # (state_dim,): how states are normalised
    scale: Array
    most: Array

    low: Array  # (action_dim,): the action range
    high: Array
    middle: Array
    max_action: Array

    plan: Array  # (3 networks, layers, 7): see above
    parameters: Array  # actor and twins: layer by layer, weights row by row, then biases
    targets: Array  # the same of the targets
    exp_avg: Array  # what Adam remembers of each parameter
    exp_avg_sq: Array
    gradients: Array  # of each parameter; rows are padded to whole vectors
    panels: Array  # (panel, unit, lane): all that belongs to each sixteen transitions
    turned: Array  # inputs of layers with units and lanes swapped, for the weights' gradients

    discounts: Array  # (n_step + 1,): powers of the discount
    reward_scale: float
    tau: float
    policy_noise: float
    noise_clip: float
    learning_rate: float


class Share(NamedTuple):
    """The panels of one thread, and where in each panel things are."""

    me: int
    team: int
    first: int  # panel of mine
    last: int  # one after the last
    pitch: int  # numbers in a panel
    rows: int  # transitions in the batch: the last panel may have fewer than sixteen
    state: int  # state and action, as the critic sees them
    action: int
    next_state: int
    next_action: int
    value: int  # the Bellman target


@compiled
def _share(job: Job, me: int, team: int) -> Share:
    count, inputs = len(job.parts), job.plan[TWIN1, 0, INS]
    return Share(
        me,
        team,
        first=me * count // team,
        last=(me + 1) * count // team,
        pitch=job.panels.size // count,
        rows=job.rows.size,
        state=0,
        action=job.observation.shape[1] * LANES,
        next_state=inputs * LANES,
        next_action=(inputs + job.observation.shape[1]) * LANES,
        value=2 * inputs * LANES,
    )


@compiled
def _update(job: Job, me: int, team: int) -> None:
    """Steps 4 to 15, once: the share of thread `me` of a team."""
    plan, panels, turned = job.plan, job.panels, job.turned
    parameters, targets = job.parameters, job.targets
    adam = (parameters, job.exp_avg, job.exp_avg_sq, job.gradients)
    critic_step, actor_step, actors_turn = job.turn[0], job.turn[1], job.turn[2] == 1
    bounds = (job.low, job.high, job.middle, job.max_action)

    # Thread 0 may come late, from an environment: the others take its pieces meanwhile.
    pieces = min(PIECES * team, len(job.parts))
    while True:
        piece = take(job.board)
        if piece >= pieces:
            break
        my = _share(job, piece, pieces)
        # Step 4: gather the batch from the memory.
        if job.from_memory[0]:
            _walk(job, my)
        _gather(job.observation, job.rows, panels, my.state, my)
        _gather(job.observation, job.ends, panels, my.next_state, my)
        _gather(job.action, job.rows, panels, my.action, my)
        _normalize(panels, my.state, job.shift, job.scale, job.most, my)
        _normalize(panels, my.next_state, job.shift, job.scale, job.most, my)
        _see(panels, job.middle, job.max_action, my)
        # Step 5: the actor target plays the next action.
        _forward(targets, plan[ACTOR], panels, my.next_state, my)
        # Step 6: smooth it with clipped noise, and stay inside the action range.
        _smooth(plan[ACTOR], panels, job.noise, (job.policy_noise, job.noise_clip), bounds, my)
        # Step 7: both critic targets judge it.
        _forward(targets, plan[TWIN1], panels, my.next_state, my)
        _forward(targets, plan[TWIN2], panels, my.next_state, my)
        # Steps 8 and 9: believe the smaller value, and add the reward: the Bellman target.
        _bellman(plan, panels, job.sums, job.weights, my)
    meet(job.board, team)

    # The twins do not need each other from here on: half of an even team takes each.
    halves = 2 - team % 2
    ours = _share(job, me // halves, team // halves)
    for twin in range(TWIN1, TWIN2 + 1):
        if halves == 1 or twin == TWIN1 + me % 2:
            # Step 10: both critics predict the value of the action that was played.
            _forward(parameters, plan[twin], panels, ours.state, ours)
            # Step 11: how far both are from the target.
            _critic_loss(plan[twin], panels, job.parts, twin - TWIN1, ours)
            # Step 12: backpropagate, and step Adam on both twins.
            _backward(parameters, plan[twin], panels, ours)
            _turn(plan[twin], panels, turned, ours)
            if team > 2:
                meet(job.board, team)
            _descend(plan[twin], panels, turned, adam, job.learning_rate, critic_step, ours)
    meet(job.board, team)

    if actors_turn:
        my = _share(job, me, team)
        # Step 13: move the actor up the slope of the first critic.
        _forward(parameters, plan[ACTOR], panels, my.state, my)
        _act(plan[ACTOR], panels, job.middle, job.max_action, my)
        _forward(parameters, plan[TWIN1], panels, my.state, my)
        _actor_loss(plan[TWIN1], panels, job.parts, my)
        _backward(parameters, plan[TWIN1], panels, my)
        _slope_of_action(parameters, plan, panels, my)
        _backward(parameters, plan[ACTOR], panels, my)
        _turn(plan[ACTOR], panels, turned, my)
        meet(job.board, team)
        _descend(plan[ACTOR], panels, turned, adam, job.learning_rate, actor_step, my)
        meet(job.board, team)
        # Step 14: the actor target follows the actor by a small step.
        # Step 15: the critic target follows the critic by a small step.
        _polyak(targets, parameters, job.tau, my)
        meet(job.board, team)
    if me == 0:
        _measure(job.parts, job.measured)


walk = compiled(sampling.walk)  # what the replay memory itself calls, for my rows


@compiled
def _walk(job: Job, my: Share) -> None:
    """The n-step return of each row, and where it led: n steps on, or where the episode ended."""
    kind = job.parameters.dtype.type
    mine = slice(my.first * LANES, min(my.last * LANES, my.rows))
    ends, sums, weights, steps = job.ends[mine], job.sums[mine], job.weights[mine], job.steps[mine]
    walk(job.rows[mine], job.next_at, job.reward, job.discounts[:-1], ends, sums, steps)
    for i in range(ends.size):
        last = ends[i]
        ends[i] = job.next_at[last]
        sums[i] *= kind(job.reward_scale)
        weights[i] = (kind(1) - job.done[last]) * job.discounts[steps[i]]


@compiled
def _normalize(panels: Array, at: int, shift: Array, scale: Array, most: Array, my: Share) -> None:
    """States as the networks see them."""
    for panel in range(my.first, my.last):
        for i in range(shift.size):
            start = panel * my.pitch + at + i * LANES
            states = panels[start : start + min(LANES, my.rows - panel * LANES)]
            for lane in range(states.size):
                states[lane] = min(max((states[lane] - shift[i]) * scale[i], -most[i]), most[i])


@compiled
def _gather(store: Array, rows: Array, panels: Array, to: int, my: Share) -> None:
    """Rows of the memory become lanes of panels."""
    for panel in range(my.first, my.last):
        lanes = rows[panel * LANES : (panel + 1) * LANES]
        block = panels[panel * my.pitch + to : (panel + 1) * my.pitch]
        for i in range(store.shape[1]):
            for lane in range(lanes.size):
                block[i * LANES + lane] = store[lanes[lane], i]


@compiled
def _see(panels: Array, middle: Array, max_action: Array, my: Share) -> None:
    """Actions as the critic sees them, -1 to 1."""
    for panel in range(my.first, my.last):
        for i in range(middle.size):
            at = panel * my.pitch + my.action + i * LANES
            actions = panels[at : at + min(LANES, my.rows - panel * LANES)]
            for lane in range(actions.size):
                actions[lane] = (actions[lane] - middle[i]) / max_action[i]


@compiled
def _forward(parameters: Array, plan: Array, panels: Array, x: int, my: Share) -> None:
    """My panels through a network, from the inputs that begin at `x`."""
    for panel in range(my.first, my.last):
        at, source = panel * my.pitch, panel * my.pitch + x
        for i in range(len(plan)):
            ins, outs, weight, to = plan[i, INS], plan[i, OUTS], plan[i, WEIGHT], at + plan[i, UNIT]
            layer(parameters, weight, ins, outs, panels, source, to, i == len(plan) - 1)
            source = to


@compiled
def _smooth(
    plan: Array,
    panels: Array,
    noises: Array,
    knobs: tuple[float, float],
    bounds: tuple[Array, Array, Array, Array],
    my: Share,
) -> None:
    """Step 6, and the next action as the critic sees it."""
    kind = panels.dtype.type
    policy_noise, noise_clip = kind(knobs[0]), kind(knobs[1])
    for panel in range(my.first, my.last):
        at, row = panel * my.pitch, panel * LANES
        for i in range(noises.shape[1]):
            low, high = bounds[0][i], bounds[1][i]
            middle, max_action = bounds[2][i], bounds[3][i]
            source, to = at + plan[-1, UNIT] + i * LANES, at + my.next_action + i * LANES
            for lane in range(min(LANES, my.rows - row)):
                noise = kind(noises[row + lane, i]) * policy_noise
                noise = min(max(noise, -noise_clip), noise_clip)
                action = middle + max_action * math.tanh(panels[source + lane])
                action = min(max(action + noise * max_action, low), high)
                panels[to + lane] = (action - middle) / max_action


@compiled
def _bellman(
    plan: Array,
    panels: Array,
    sums: Array,
    weights: Array,
    my: Share,
) -> None:
    """Steps 8 and 9; a terminated episode has no next value."""
    for panel in range(my.first, my.last):
        at, first = panel * my.pitch, panel * LANES
        Q1, Q2 = at + plan[TWIN1, -1, UNIT], at + plan[TWIN2, -1, UNIT]
        for lane in range(min(LANES, my.rows - first)):
            one, two = panels[Q1 + lane], panels[Q2 + lane]
            smaller = one if one < two or one != one else two  # nan if either is, as in PyTorch
            after = weights[first + lane] * smaller
            panels[at + my.value + lane] = sums[first + lane] + after


@compiled
def _critic_loss(plan: Array, panels: Array, parts: Array, twin: int, my: Share) -> None:
    """Step 11: loss = the mean of (Q - target)^2, so its slope is 2 (Q - target) / rows."""
    kind = panels.dtype.type
    for panel in range(my.first, my.last):
        at = panel * my.pitch
        Q, slope, target = at + plan[-1, UNIT], at + plan[-1, SLOPE], at + my.value
        loss, total = kind(0), kind(0)
        for lane in range(min(LANES, my.rows - panel * LANES)):
            error = panels[Q + lane] - panels[target + lane]
            panels[slope + lane] = 2 * error / kind(my.rows)
            loss += error * error
            total += panels[Q + lane]
        parts[panel, twin] = loss / kind(my.rows)
        if twin == 0:
            parts[panel, 3] = total / kind(my.rows)


@compiled
def _backward(parameters: Array, plan: Array, panels: Array, my: Share) -> None:
    """My panels back through a network: how the loss grows with each of its units."""
    for panel in range(my.first, my.last):
        at = panel * my.pitch
        for i in range(len(plan) - 1, 0, -1):
            ins, outs, weight = plan[i, INS], plan[i, OUTS], plan[i, WEIGHT]
            units, to = at + plan[i - 1, UNIT], at + plan[i - 1, SLOPE]
            back(parameters, weight, ins, outs, panels, at + plan[i, SLOPE], units, to)


@compiled
def _turn(plan: Array, panels: Array, turned: Array, my: Share) -> None:
    """Swap units and lanes of what goes into each layer, for the gradients of its weights."""
    source = my.state
    for i in range(len(plan)):
        if plan[i, OUTS] > 1:
            to = plan[i, TURNED]
            turn(panels, source, my.pitch, plan[i, INS], turned, to, my.first, my.last)
        source = plan[i, UNIT]


@compiled
def _descend(
    plan: Array,
    panels: Array,
    turned: Array,
    adam: tuple[Array, Array, Array, Array],
    learning_rate: float,
    step: int,
    my: Share,
) -> None:
    """The gradients of my share of each layer's rows, and Adam's step on these."""
    kind = panels.dtype.type
    gradients = adam[3]
    size = kind(learning_rate / (1 - 0.9**step))
    root = kind(math.sqrt(1 - 0.999**step))
    source = my.state
    for i in range(len(plan)):
        ins, outs, weight, start = plan[i, INS], plan[i, OUTS], plan[i, WEIGHT], plan[i, GRADIENT]
        x, width = plan[i, TURNED], padded(ins)
        tiles = (outs + HEIGHT - 1) // HEIGHT  # shared whole, so that none is cut lower
        low = my.me * tiles // my.team * HEIGHT
        high = min((my.me + 1) * tiles // my.team * HEIGHT, outs)
        if low < high:
            slope, to, bias = (
                plan[i, SLOPE] + low * LANES,
                start + low * width,
                start + outs * width,
            )
            # A layer with one output does not use the first, one with more not yet the second.
            spare = turned[x:] if outs == 1 else gradients[to:]
            _bias_gradient(panels, slope, my.pitch, spare, gradients[bias + low : bias + high])
            if outs == 1:
                out = gradients[to : to + ins]
                _gradient_of_one(panels, slope, source, my.pitch, spare, out)
            else:
                gradient(panels, slope, my.pitch, high - low, turned, x, ins, gradients, to)
            if ins == width:
                _adam(adam, weight + low * ins, to, (high - low) * ins, size, root)
            else:
                for row in range(low, high):
                    _adam(adam, weight + row * ins, start + row * width, ins, size, root)
            _adam(adam, weight + ins * outs + low, bias + low, high - low, size, root)
        source = plan[i, UNIT]


@compiled
def _bias_gradient(panels: Array, slope: int, pitch: int, spare: Array, out: Array) -> None:
    """The slopes of some outputs, summed over the batch: panels first, then lanes."""
    totals = spare[: out.size * LANES]
    totals[:] = 0
    for at in range(slope, panels.size, pitch):
        slopes = panels[at : at + totals.size]
        for i in range(totals.size):
            totals[i] += slopes[i]
    _sum_lanes(totals, out)


@compiled
def _gradient_of_one(
    panels: Array, slope: int, source: int, pitch: int, spare: Array, out: Array
) -> None:
    """The gradient of the weights of a layer with one output: its slope times its inputs."""
    totals = spare[: out.size * LANES]
    totals[:] = 0
    for at in range(0, panels.size, pitch):
        for unit in range(out.size):
            i = unit * LANES
            add_product(totals, i, panels, at + slope, panels, at + source + i)
    _sum_lanes(totals, out)


@compiled
def _sum_lanes(lanes: Array, out: Array) -> None:
    for i in range(out.size):
        total = lanes[i * LANES]
        for lane in range(1, LANES):
            total += lanes[i * LANES + lane]
        out[i] = total


@compiled
def _adam(
    adam: tuple[Array, Array, Array, Array],
    at: int,
    gradient_at: int,
    count: int,
    size: float,
    root: float,
) -> None:
    """Kingma and Ba's step, as PyTorch takes it, on some parameters in a row."""
    parameters, exp_avg = adam[0][at : at + count], adam[1][at : at + count]
    exp_avg_sq, slopes = adam[2][at : at + count], adam[3][gradient_at : gradient_at + count]
    kind = parameters.dtype.type
    tenth, most, rest, epsilon = kind(1 - 0.9), kind(0.999), kind(1 - 0.999), kind(1e-8)
    zero, tiny = kind(0), kind(1e-37)
    for i in range(count):
        mean = exp_avg[i] + (slopes[i] - exp_avg[i]) * tenth
        square = exp_avg_sq[i] * most + slopes[i] * slopes[i] * rest
        # What a dead unit leaves decays to denormal numbers, which slow the processor down.
        mean = zero if abs(mean) < tiny else mean
        square = zero if square < tiny else square
        exp_avg[i], exp_avg_sq[i] = mean, square
        parameters[i] -= size * mean / (math.sqrt(square) / root + epsilon)


@compiled
def _act(plan: Array, panels: Array, middle: Array, max_action: Array, my: Share) -> None:
    """The actor's own action takes the place of the one that was played."""
    for panel in range(my.first, my.last):
        at = panel * my.pitch
        for i in range(middle.size):
            source, to = at + plan[-1, UNIT] + i * LANES, at + my.action + i * LANES
            for lane in range(min(LANES, my.rows - panel * LANES)):
                squashed = math.tanh(panels[source + lane])
                panels[source + lane] = squashed
                action = middle[i] + max_action[i] * squashed
                panels[to + lane] = (action - middle[i]) / max_action[i]


@compiled
def _actor_loss(plan: Array, panels: Array, parts: Array, my: Share) -> None:
    """Step 13: loss = - the mean of Q1, so its slope is -1 / rows."""
    kind = panels.dtype.type
    for panel in range(my.first, my.last):
        at = panel * my.pitch
        loss = kind(0)
        for lane in range(min(LANES, my.rows - panel * LANES)):
            loss -= panels[at + plan[-1, UNIT] + lane]
            panels[at + plan[-1, SLOPE] + lane] = -1 / kind(my.rows)
        parts[panel, 2] = loss / kind(my.rows)


@compiled
def _slope_of_action(parameters: Array, plan: Array, panels: Array, my: Share) -> None:
    """How the loss grows with the action, and through the tanh with the actor's last layer."""
    critic, actor = plan[TWIN1, 0], plan[ACTOR, -1]
    first = (my.action - my.state) // LANES
    for panel in range(my.first, my.last):
        at = panel * my.pitch
        slope, to = at + critic[SLOPE], at + actor[SLOPE]
        ins, outs, weight = critic[INS], critic[OUTS], critic[WEIGHT]
        back_to_inputs(parameters, weight, first, ins, outs, panels, slope, to)
        for i in range(actor[OUTS]):
            for lane in range(min(LANES, my.rows - panel * LANES)):
                squashed = panels[at + actor[UNIT] + i * LANES + lane]
                panels[to + i * LANES + lane] *= 1 - squashed * squashed


@compiled
def _measure(parts: Array, measured: Array) -> None:
    measured[:] = 0
    for panel in range(len(parts)):
        for i in range(measured.size):
            measured[i] += parts[panel, i]


@compiled
def _polyak(targets: Array, parameters: Array, tau: float, my: Share) -> None:
    """Steps 14 and 15 on my share: target <- tau * model + (1 - tau) * target."""
    low, high = my.me * targets.size // my.team, (my.me + 1) * targets.size // my.team
    old, new = targets[low:high], parameters[low:high]
    step, rest = targets.dtype.type(tau), targets.dtype.type(1 - tau)
    if tau < 0.5:  # from the nearer end, as PyTorch does: a step of 1 copies exactly
        for i in range(old.size):
            old[i] += step * (new[i] - old[i])
    else:
        for i in range(old.size):
            old[i] = new[i] - (new[i] - old[i]) * rest


@compiled
def _select_action(
    parameters: Array,
    plan: Array,
    bounds: tuple[Array, Array, Array, Array],
    seen: tuple[Array, Array, Array],
    state: Array,
) -> Array:
    """The action for one state: layer by layer, a dot product per unit."""
    x = state.astype(parameters.dtype)
    shift, scale, most = seen
    for i in range(x.size):
        x[i] = min(max((x[i] - shift[i]) * scale[i], -most[i]), most[i])
    for i in range(len(plan)):
        ins, outs, weight = plan[i, INS], plan[i, OUTS], plan[i, WEIGHT]
        out = parameters[weight + ins * outs : weight + (ins + 1) * outs].copy()  # the biases
        for row in range(outs):
            out[row] += dot(parameters, weight + row * ins, x, ins)
            if i < len(plan) - 1 and out[row] < 0:
                out[row] = 0
        x = out
    low, high, middle, max_action = bounds
    for i in range(x.size):
        x[i] = min(max(middle[i] + max_action[i] * math.tanh(x[i]), low[i]), high[i])
    return x


def _entry_points(version: str) -> tuple[Callable[..., Any], ...]:
    """What Python calls.

    Numba keeps compiled code for as long as this file stays as it is. `version`, which the
    functions close over and which becomes a part of the key, stands for the other sources.
    """

    def begin(board: Array, team: int) -> int:
        """Have threads 1 and up begin an update, which thread 0 is to join."""
        _ = version
        return call(board, team)

    def work(job: Job, me: int, team: int, calls: int) -> None:
        """Thread 0 joins one update; the others take part in all, until they are sent home."""
        _ = version
        if me == 0:
            _update(job, 0, team)
            close(job.board)
            return
        while True:
            calls, team = wait_for_call(job.board, calls)
            if team < 0:
                return
            if me < team:
                _update(job, me, team)

    def act(
        parameters: Array,
        plan: Array,
        bounds: tuple[Array, Array, Array, Array],
        seen: tuple[Array, Array, Array],
        states: Array,
        actions: Array,
    ) -> None:
        """The policy's action for every state."""
        _ = version
        for i in range(len(states)):
            actions[i] = _select_action(parameters, plan, bounds, seen, states[i])

    return entry(begin), entry(work), entry(act)


_sources = [
    *(Path(__file__).with_name(f"{name}.py") for name in ("threads", "tiles")),
    *(Path(inspect.getfile(module)) for module in (sampling, compiling)),
]
_version = hashlib.sha256(b"".join(source.read_bytes() for source in _sources)).hexdigest()
begin, work, act = _entry_points(_version)
