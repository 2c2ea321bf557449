"""The page of TD7 again, compiled. Lay it beside `TD7.update`, step by step.

A panel goes through everything that needs no other panel, from its rows of the memory to the
gradients of the encoder and of both twins, before the next one begins. Then the threads share the
rows of all weights. The targets are copied in agent.py: that is seldom.
"""

from typing import NamedTuple

from t3d.base.compiling import compiled
from t3d.base.numbers import Array
from t3d.learn.fused.layers import (
    Rates,
    backward,
    clipped,
    descend,
    differentiate,
    forward,
    rates,
    step,
    transpose_inputs,
)
from t3d.learn.fused.plan import Bounds, Draw, Knobs, Memory, Scaling, Scratch, Weights
from t3d.learn.fused.steps import (
    Share,
    act,
    critic_loss,
    follow,
    gather,
    normalize,
    scale_actions,
    share,
    smooth,
    through_tanh,
)
from t3d.learn.fused.td7.plan import Networks, Sections
from t3d.learn.fused.td7.steps import (
    actor_loss,
    backward_to_action,
    backward_to_zs,
    backward_to_zsa,
    bellman,
    copy_rows,
    encoder_loss,
    place_action,
    place_zs,
    place_zsa,
    total_measures,
)
from t3d.learn.fused.threads import barrier, next_task

_TASKS = 4  # that the first part is divided into, per thread


class Job(NamedTuple):
    """All that an update reads and writes; plan.py, here and of TD3, describes each part."""

    counters: Array
    schedule: Array
    memory: Memory
    batch: Draw
    bounds: Bounds
    scaling: Scaling
    networks: Networks
    sections: Sections
    weights: Weights  # of encoder, actor and twins, in this order
    scratch: Scratch
    knobs: Knobs
    fixed: Array  # the weights of the fixed encoder
    limits: Array  # (2,): between which the values of next states are kept


@compiled
def update(job: Job, me: int, team: int) -> None:
    """Steps A to D and 4 to 13, once: the share of thread `me` of a team."""
    knobs, panels, rows = job.knobs, job.scratch.panels, job.batch.rows.size
    # Read now: thread 0 may write the next schedule while the others still end this update.
    now = job.schedule[0]
    critic_step, actor_step, actor_due = now.critic_step, now.actor_step, now.actor_due
    encoder_rate, critic_rate, actor_rate = now.encoder_rate, now.critic_rate, now.actor_rate
    clip = knobs.gradient_clip
    f, g, _, twin1, twin2 = job.networks
    at = job.sections

    # Thread 0 may come late, from an environment: the others do its tasks meanwhile.
    tasks = min(_TASKS * team, len(panels))
    task = next_task(job.counters)
    while task < tasks:
        my = share(panels, rows, task, tasks)
        _sample(job, my)
        _encoder(job, my)
        _targets(job, my)
        _critics(job, my)
        task = next_task(job.counters)
    barrier(job.counters, team)

    # Steps B and 12: Adam, on my rows of the encoder and of both twins.
    my = share(panels, rows, me, team)
    of_encoder = rates(encoder_rate, critic_step, knobs, panels)
    of_critics = rates(critic_rate, critic_step, knobs, panels)
    if clip:
        differentiate(f, job.scratch, at.state, my)
        differentiate(g, job.scratch, f[-1].unit, my)
        differentiate(twin1, job.scratch, at.state, my)
        differentiate(twin2, job.scratch, at.state, my)
        barrier(job.counters, team)
        of_encoder = clipped(of_encoder, f[0], g[-1], job.scratch, clip)
        of_critics = clipped(of_critics, twin1[0], twin2[-1], job.scratch, clip)
        step(f, job.weights, job.scratch, of_encoder, my)
        step(g, job.weights, job.scratch, of_encoder, my)
        step(twin1, job.weights, job.scratch, of_critics, my)
        step(twin2, job.weights, job.scratch, of_critics, my)
    else:
        descend(f, job.weights, job.scratch, of_encoder, at.state, my)
        descend(g, job.weights, job.scratch, of_encoder, f[-1].unit, my)
        descend(twin1, job.weights, job.scratch, of_critics, at.state, my)
        descend(twin2, job.weights, job.scratch, of_critics, at.state, my)
    barrier(job.counters, team)

    if actor_due:
        _actor(job, my)
        barrier(job.counters, team)
        of_actor = rates(actor_rate, actor_step, knobs, panels)
        _descend_actor(job, of_actor, team, my)
        barrier(job.counters, team)
    if me == 0:
        total_measures(job.scratch.measures, job.scratch.totals)


@compiled
def _sample(job: Job, my: Share) -> None:
    """Step 4 (the rows are drawn already): gather a batch of transitions from the memory."""
    memory, batch, at = job.memory, job.batch, job.sections
    if batch.from_memory[0]:
        follow(memory, batch, job.knobs, my)
    gather(memory.observation, batch.rows, at.state, my)
    gather(memory.observation, batch.ends, at.next_state, my)
    gather(memory.action, batch.rows, at.action, my)
    normalize(at.state, job.scaling, my)
    normalize(at.next_state, job.scaling, my)
    scale_actions(at.action, job.bounds, my)


@compiled
def _encoder(job: Job, my: Share) -> None:
    """Steps A and B, but for Adam."""
    parameters, at = job.weights.parameters, job.sections
    f, g = job.networks.f, job.networks.g
    # Step A (new): the encoder predicts the embedding of the next state.
    forward(parameters, f, at.next_state, my)
    copy_rows(f[-1].unit, at.next_zs, f[-1].outs, my)
    forward(parameters, f, at.state, my)
    place_action(job.networks, at.action, my)
    forward(parameters, g, f[-1].unit, my)
    encoder_loss(g, at.next_zs, job.scratch.measures, my)
    # Step B (new): backpropagate.
    backward(parameters, g, my)
    backward_to_zs(parameters, f, g, my)
    backward(parameters, f, my)
    transpose_inputs(f, job.scratch, at.state, my)
    transpose_inputs(g, job.scratch, f[-1].unit, my)


@compiled
def _targets(job: Job, my: Share) -> None:
    """Steps C and 5 to 9: the Bellman targets."""
    targets, nets, at = job.weights.targets, job.networks, job.sections
    # Step C (new): embed the next state, as the targets know it.
    forward(targets, nets.f, at.next_state, my)
    place_zs(nets, my)
    # Step 5 (changed): the actor target sees the embedding, too.
    forward(targets, nets.actor, at.next_state, my)
    # Step 6 (as in TD3): smooth it with clipped noise, and stay inside the action range.
    smooth(nets.actor, job.batch.noise, at.next_action, job.knobs, job.bounds, my)
    # Step 7 (changed): both critic targets see the embeddings of state and action, too.
    place_action(nets, at.next_action, my)
    forward(targets, nets.g, nets.f[-1].unit, my)
    place_zsa(nets, my)
    forward(targets, nets.twin1, at.next_state, my)
    forward(targets, nets.twin2, at.next_state, my)
    # Steps 8 (changed) and 9: the smaller value, but none beyond all targets so far.
    bellman(nets, job.batch, job.limits, at.target, job.scratch.measures, my)


@compiled
def _critics(job: Job, my: Share) -> None:
    """Steps D and 10 to 12, but for Adam."""
    fixed, parameters, nets = job.fixed, job.weights.parameters, job.networks
    at, batch, huber = job.sections, job.batch, job.knobs.huber
    # Step D (new): embed the state and the action, as the critics know them.
    forward(fixed, nets.f, at.state, my)
    place_zs(nets, my)
    place_action(nets, at.action, my)
    forward(fixed, nets.g, nets.f[-1].unit, my)
    place_zsa(nets, my)
    for twin in range(2):
        network = nets.twin1 if twin == 0 else nets.twin2
        # Step 10 (changed): both critics see these embeddings.
        forward(parameters, network, at.state, my)
        # Step 11 (changed): Huber's loss, which goes with LAP.
        critic_loss(network, twin, at.target, batch, huber, job.scratch.measures, my)
        # Step 12 (as in TD3): backpropagate.
        backward(parameters, network, my)
        transpose_inputs(network, job.scratch, at.state, my)


@compiled
def _actor(job: Job, my: Share) -> None:
    """Step 13 (changed), but for Adam: move the actor up the gradient of both critics."""
    fixed, parameters, nets = job.fixed, job.weights.parameters, job.networks
    at = job.sections
    forward(parameters, nets.actor, at.state, my)
    act(nets.actor, at.action, job.bounds, my)
    place_action(nets, at.action, my)
    forward(fixed, nets.g, nets.f[-1].unit, my)
    place_zsa(nets, my)
    forward(parameters, nets.twin1, at.state, my)
    forward(parameters, nets.twin2, at.state, my)
    actor_loss(nets, job.scratch.measures, my)
    backward(parameters, nets.twin1, my)
    backward(parameters, nets.twin2, my)
    backward_to_zsa(parameters, nets, my)
    backward(fixed, nets.g, my)
    backward_to_action(parameters, fixed, nets, my)
    through_tanh(nets.actor, my)
    backward(parameters, nets.actor, my)
    transpose_inputs(nets.actor, job.scratch, at.state, my)


@compiled
def _descend_actor(job: Job, rate: Rates, team: int, my: Share) -> None:
    """Step 13: Adam, on my rows of the actor."""
    actor, clip, x = job.networks.actor, job.knobs.gradient_clip, job.sections.state
    if clip:
        differentiate(actor, job.scratch, x, my)
        barrier(job.counters, team)
        rate = clipped(rate, actor[0], actor[-1], job.scratch, clip)
        step(actor, job.weights, job.scratch, rate, my)
    else:
        descend(actor, job.weights, job.scratch, rate, x, my)
