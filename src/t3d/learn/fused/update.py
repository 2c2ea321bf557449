"""Steps 4 to 15 again, fused for the CPU: the numbers of learn/t3d.py, several times faster.

The same update with the gradients worked out by hand, compiled by Numba. Lay it beside
`T3D.update`, step by step. Nothing is allocated, nothing is dispatched layer by layer, and the
work stays in the caches: the batch is divided into panels of sixteen transitions, and each
goes through a whole network before the next one begins (docs/fused.md has a picture).

Threads share the panels, then the rows of the gradients, and wait for each other in between.
Which thread computes a number does not change the number: any team gives the same bits.
"""

from typing import NamedTuple

from t3d.base.compiling import compiled
from t3d.base.numbers import Array
from t3d.learn.fused.layers import (
    backward,
    backward_to_action,
    clipped,
    descend,
    differentiate,
    forward,
    polyak,
    rates,
    step,
    transpose_inputs,
)
from t3d.learn.fused.plan import (
    Bounds,
    Draw,
    Knobs,
    Memory,
    Networks,
    Scaling,
    Scratch,
    Sections,
    Weights,
)
from t3d.learn.fused.steps import (
    act,
    actor_loss,
    bellman,
    critic_loss,
    follow,
    gather,
    normalize,
    scale_actions,
    share,
    smooth,
    through_tanh,
    total_measures,
)
from t3d.learn.fused.threads import barrier, next_task

_TASKS = 4  # that steps 4 to 9 are divided into, per thread


class Job(NamedTuple):
    """All that an update reads and writes; plan.py describes each part."""

    counters: Array  # by which the threads of a team coordinate
    schedule: Array  # (1,): Adam's step numbers and rates, and whether the actor is due
    memory: Memory
    batch: Draw
    bounds: Bounds
    scaling: Scaling
    networks: Networks
    sections: Sections
    weights: Weights
    scratch: Scratch
    knobs: Knobs


@compiled
def update(job: Job, me: int, team: int) -> None:
    """Steps 4 to 15, once: the share of thread `me` of a team."""
    memory, batch, bounds, knobs, at = job.memory, job.batch, job.bounds, job.knobs, job.sections
    parameters, targets = job.weights.parameters, job.weights.targets
    actor, twin1, twin2 = job.networks
    twins = twin1, twin2
    panels, rows = job.scratch.panels, batch.rows.size
    # Read now: thread 0 may write the next schedule while the others still end this update.
    now = job.schedule[0]
    critic_step, actor_step, actor_due = now.critic_step, now.actor_step, now.actor_due
    critic_rate, actor_rate, target_step = now.critic_rate, now.actor_rate, now.target_step
    clip = knobs.gradient_clip

    # Thread 0 may come late, from an environment: the others do its tasks meanwhile.
    tasks = min(_TASKS * team, len(panels))
    task = next_task(job.counters)
    while task < tasks:
        my = share(panels, rows, task, tasks)
        # Step 4: gather a batch of transitions from the memory.
        if batch.from_memory[0]:
            follow(memory, batch, knobs, my)
        gather(memory.observation, batch.rows, at.state, my)
        gather(memory.observation, batch.ends, at.next_state, my)
        gather(memory.action, batch.rows, at.action, my)
        normalize(at.state, job.scaling, my)
        normalize(at.next_state, job.scaling, my)
        scale_actions(at.action, bounds, my)
        # Step 5: the actor target plays the next action.
        forward(targets, actor, at.next_state, my)
        # Step 6: smooth it with clipped noise, and stay inside the action range.
        smooth(actor, batch.noise, at.next_action, knobs, bounds, my)
        # Step 7: both critic targets judge it.
        forward(targets, twin1, at.next_state, my)
        forward(targets, twin2, at.next_state, my)
        # Steps 8 and 9: believe the smaller value, and add the reward: the Bellman target.
        bellman(twins, batch, at.target, my)
        task = next_task(job.counters)
    barrier(job.counters, team)

    # The twins do not need each other from here on: half of an even team takes each.
    halves = 2 - team % 2
    rate = rates(critic_rate, critic_step, knobs, panels)
    my = share(panels, rows, me // halves, team // halves)
    for twin in range(2):
        if halves == 1 or twin == me % 2:
            # Step 10: both critics predict the value of the action that was played.
            forward(parameters, twins[twin], at.state, my)
            # Step 11: how far both are from the target.
            critic_loss(twins[twin], twin, at.target, batch, knobs.huber, job.scratch.measures, my)
            # Step 12: backpropagate, and step Adam on both twins.
            backward(parameters, twins[twin], my)
            transpose_inputs(twins[twin], job.scratch, at.state, my)
            if team > 2:
                barrier(job.counters, team)
            if clip:
                differentiate(twins[twin], job.scratch, at.state, my)
            else:
                descend(twins[twin], job.weights, job.scratch, rate, at.state, my)
    barrier(job.counters, team)
    if clip:  # the norm is that of both twins' gradients together
        rate = clipped(rate, twin1[0], twin2[-1], job.scratch, clip)
        for twin in range(2):
            if halves == 1 or twin == me % 2:
                step(twins[twin], job.weights, job.scratch, rate, my)
        barrier(job.counters, team)

    if actor_due:
        rate = rates(actor_rate, actor_step, knobs, panels)
        my = share(panels, rows, me, team)
        # Step 13: move the actor up the gradient of the first critic.
        forward(parameters, actor, at.state, my)
        act(actor, at.action, bounds, my)
        forward(parameters, twin1, at.state, my)
        actor_loss(twin1, job.scratch.measures, my)
        backward(parameters, twin1, my)
        backward_to_action(parameters, twin1, actor, my)
        through_tanh(actor, my)
        backward(parameters, actor, my)
        transpose_inputs(actor, job.scratch, at.state, my)
        barrier(job.counters, team)
        if clip:
            differentiate(actor, job.scratch, at.state, my)
            barrier(job.counters, team)
            rate = clipped(rate, actor[0], actor[-1], job.scratch, clip)
            step(actor, job.weights, job.scratch, rate, my)
        else:
            descend(actor, job.weights, job.scratch, rate, at.state, my)
        barrier(job.counters, team)
        # Step 14: the actor target follows the actor by a small step.
        # Step 15: the critic target follows the critic by a small step.
        polyak(job.weights, target_step, my)
        barrier(job.counters, team)
    if me == 0:
        total_measures(job.scratch)
