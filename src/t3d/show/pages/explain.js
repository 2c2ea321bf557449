"use strict";
// One recorded update in fifteen steps. A few knobs can be changed; the same formulas then compute
// what follows.

const data = JSON.parse(document.getElementById("data").textContent);
const knobs = data.knobs;
const dims = data.low.length;
const half = data.high.map((high, i) => (high - data.low[i]) / 2);
const middle = data.high.map((high, i) => (high + data.low[i]) / 2);
const recorded = () => ({
  update: 1,
  row: data.row,
  policy_noise: knobs.policy_noise,
  noise_clip: knobs.noise_clip,
  combine: "min",
  discount: knobs.discount,
  tau: knobs.tau,
  terminated: null, // as recorded
});
let chosen = recorded();

// ---------------------------------------------------------------- the formulas

function unpack({ shape, base64 }) {
  const bytes = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
  return { shape, values: new Float32Array(bytes.buffer) };
}

const unpackLayers = (layers) => layers.map(({ weight, bias }) => ({ weight: unpack(weight), bias: unpack(bias).values }));
const criticTargets = data.critic_targets.map((twins) => twins.map(unpackLayers));
const actors = data.actors.map(([layers]) => unpackLayers(layers)); // if they are small enough to draw

/** The output of each layer of a network for one row: linear, with a ReLU between layers. */
function forward(layers, inputs) {
  const outputs = [inputs];
  layers.forEach(({ weight, bias }, depth) => {
    const [outs, ins] = weight.shape;
    const output = [];
    for (let i = 0; i < outs; i++) {
      let sum = bias[i];
      for (let j = 0; j < ins; j++) sum += weight.values[i * ins + j] * outputs[depth][j];
      output.push(depth < layers.length - 1 ? Math.max(0, sum) : sum);
    }
    outputs.push(output);
  });
  return outputs;
}

const clamp = (value, low, high) => Math.min(high, Math.max(low, value));

/** Steps 5 to 11 of the chosen update, with the chosen knobs. */
function compute(with_ = chosen) {
  const u = data.updates[with_.update];
  const rows = u.next_action.length;
  const clipped = u.noise.map((row) => row.map((n) => clamp(n * with_.policy_noise, -with_.noise_clip, with_.noise_clip)));
  const smoothed = u.next_action.map((row, i) => row.map((a, j) => clamp(a + clipped[i][j] * half[j], data.low[j], data.high[j])));
  const both = criticTargets[u.critic_targets];
  const values = (twin) => smoothed.map((action, i) => {
    const inputs = [...u.batch.next_state[i], ...action.map((a, j) => (a - middle[j]) / half[j])];
    return forward(twin, inputs).at(-1)[0];
  });
  const target_Q1 = both ? values(both[0]) : u.target_Q1;
  const target_Q2 = both ? values(both[1]) : u.target_Q2;
  const join = { min: Math.min, mean: (a, b) => (a + b) / 2, first: (a) => a }[with_.combine];
  const smaller = target_Q1.map((q, i) => join(q, target_Q2[i]));
  const done = u.batch.done.map((d, i) => (i === with_.row && with_.terminated !== null ? Number(with_.terminated) : d));
  const factor = u.batch.steps.map((steps) => with_.discount ** steps);
  const target = smaller.map((q, i) => u.batch.reward[i] + (1 - done[i]) * factor[i] * q);
  const square = (values) => values.reduce((sum, q, i) => sum + (q - target[i]) ** 2, 0) / rows;
  return { clipped, smoothed, target_Q1, target_Q2, smaller, done, factor, target, loss: square(u.Q1) + square(u.Q2) };
}

/** How far what is computed here lies from what was recorded, where nothing was changed. */
function difference() {
  if (!criticTargets.length) return null;
  let largest = 0;
  data.updates.forEach((u, update) => {
    const found = compute({ ...recorded(), update });
    for (const name of ["clipped", "smoothed", "target_Q1", "target_Q2", "smaller", "target"]) {
      const [mine, theirs] = [found[name].flat(), u[name].flat()];
      mine.forEach((value, i) => { largest = Math.max(largest, Math.abs(value - theirs[i]) / Math.max(1, Math.abs(theirs[i]))); });
    }
  });
  return largest;
}

const isChanged = () => {
  const original = recorded();
  return ["policy_noise", "noise_clip", "combine", "discount", "tau", "terminated"].some((name) => chosen[name] !== original[name]);
};

// ---------------------------------------------------------------- what is shown

const at = (kind, step) => document.querySelector(`[data-${kind}="${step}"]`);

function put(kind, step, ...children) {
  at(kind, step).replaceChildren(...children.flat());
}

function live(step, ...parts) {
  put("live", step, parts.flat().map((part) => (typeof part === "string" ? make("span", { class: "number" }, part) : part)));
}

function figure(step, drawing, caption) {
  put("picture", step, make("figure", { class: "picture", tabindex: "0" }, [drawing].flat(), make("figcaption", {}, caption)));
}

const list = (row) => (row.length === 1 ? show(row[0]) : `(${row.slice(0, 6).map((v) => show(v)).join(", ")}${row.length > 6 ? ", …" : ""})`);

function render() {
  const u = data.updates[chosen.update];
  const c = compute();
  const r = chosen.row;
  const n = knobs.batch_size;
  const rows = u.next_action.length;
  const note = n > rows ? `the first ${rows} rows` : "";
  const lit = { lit: r, note };
  const cut = (table) => table.map((row) => row.slice(0, 12));
  const stateNote = { lit: r, note: data.state_dim > 12 ? `${note} the first 12 numbers` : note };
  document.getElementById("changed").textContent = isChanged() ? "You changed a knob: steps 6 to 11, 14 and 15 are not what the run did." : "";

  // 1: the memory
  const m = u.memory;
  live(1, `${m.size.toLocaleString("en")} transitions are in the memory; its capacity is ${knobs.capacity.toLocaleString("en")}`);
  figure(1, memoryStrip(m), `${m.reward.length} successive moments${knobs.num_envs > 1 ? ` of one of the ${knobs.num_envs} environments` : ""}${data.pendulum ? ": the pendulum, the motor’s push as an arrow, the reward r below" : ""}. Yellow: sampled for this update. The bar is the whole memory, the oldest on the left; the marks are the rows sampled for this update.`);

  // 2, 3: the networks
  const sizes = [data.state_dim, ...data.hidden.actor, dims].join(" → ");
  live(2, `${sizes} units, ${data.parameters.actor.toLocaleString("en")} weights; actions from ${list(data.low)} to ${list(data.high)}, so m = ${list(middle)}, h = ${list(half)}`);
  figure(2, actorPicture(u, r), actors.length ? `The actor computes its action in the state of row ${r + 1}. Lines are weights, circles the outputs of units: blue above 0, orange below. A hidden unit outputs 0 instead of a number below 0 (ReLU): those are empty. The last number is tanh’s, times h.` : "The state goes in on the left, the action comes out on the right; each box is a layer of units.");
  const critic = [data.state_dim + dims, ...data.hidden.critic, 1].join(" → ");
  live(3, `${critic} units each, ${data.parameters.critic.toLocaleString("en")} weights in both`);
  figure(3, networksPicture(), "Six networks. Solid ones learn; dashed ones are slow copies. Both critics learn to predict the target value, which the copies compute; the actor learns from the first critic which way is up.");

  // 4: the batch
  const seen = [
    knobs.normalize_observations ? "states are normalised here" : "",
    knobs.reward_scale === 1 ? "" : `rewards are multiplied by ${short(knobs.reward_scale)} here`,
  ].filter(Boolean).join(", ");
  const stored = u.stored || u.batch;
  live(4, `row ${r + 1} of ${n}: s = ${list(u.batch.state[r])}, a = ${list(u.batch.action[r])}, r = ${show(u.batch.reward[r])}, s′ = ${list(u.batch.next_state[r])}, d = ${u.batch.done[r]}${seen ? ` (${seen})` : ""}`);
  figure(4, frames(rows, (i) => ({ state: stored.state[i], next: stored.next_state[i], action: u.batch.action[i], reward: u.batch.reward[i] / knobs.reward_scale, lit: i === r, name: `row ${i + 1}` })), `${n > rows ? `The first ${rows} of the ${n} rows` : "The rows"} of the batch${data.pendulum ? ": the pendulum before (solid) and after (faint), and the push between" : ""}. They come from the whole memory, and are not related.`);
  put("tensors", 4,
    tensor("batch.state", [n, data.state_dim], cut(u.batch.state), stateNote),
    tensor("batch.action", [n, dims], u.batch.action, lit),
    tensor("batch.reward", [n], u.batch.reward, lit),
    tensor("batch.next_state", [n, data.state_dim], cut(u.batch.next_state), stateNote),
    tensor("batch.done", [n], u.batch.done, lit));

  // 5, 6: the next action
  live(5, `a′ = π′(${list(u.batch.next_state[r])}) = ${list(u.next_action[r])}`);
  figure(5, nextActionPicture(u, r), `The target’s action in the next state of each row${dims > 1 ? ", first dimension" : ""}; row ${r + 1} is filled.`);
  put("tensors", 5, tensor("next_action", [n, dims], u.next_action, lit));
  const [raw, cl] = [u.noise[r][0], c.clipped[r][0]];
  live(6, `a′ = clip(${show(u.next_action[r][0])} + ${show(half[0])} · clip(${short(chosen.policy_noise)} · ${show(raw)}, ±${short(chosen.noise_clip)})) = clip(${show(u.next_action[r][0])} + ${show(half[0])} · ${show(cl)}) = ${show(c.smoothed[r][0])}`, dims > 1 ? " in the first dimension" : "");
  figure(6, noisePicture(u, c, r), "The action’s range. The ring is the target’s action (step 5); the band is as far as clipped noise can move it; the dot is the action that the critics’ targets value.");
  put("tensors", 6, tensor("noise", [n, dims], c.clipped, lit), tensor("next_action", [n, dims], c.smoothed, lit));

  // 7 to 9: the target value
  live(7, `Q1′ = ${show(c.target_Q1[r])}, Q2′ = ${show(c.target_Q2[r])}`);
  const pairs = c.target_Q1.map((q, i) => [q, c.target_Q2[i]]);
  const believed = { min: (one, two) => [one <= two, two < one], mean: () => [true, true], first: () => [true, false] }[chosen.combine];
  figure(7, pairPicture(c.target_Q1, c.target_Q2, r, null, "Both targets' values for each row"), "Each row’s two opinions, the first target’s on the left.");
  put("tensors", 7, tensor("target_Q1, target_Q2", [n, 2], pairs, lit));
  const how = { min: "min", mean: "mean", first: "first" }[chosen.combine];
  live(8, `${how}(${show(c.target_Q1[r])}, ${show(c.target_Q2[r])}) = ${show(c.smaller[r])}`);
  const caption = {
    min: "How far each opinion is from the middle of the two. The smaller one, framed, is believed.",
    mean: "How far each opinion is from the middle of the two, which is now believed.",
    first: "How far each opinion is from the middle of the two. Now the first is always believed.",
  }[chosen.combine];
  const off = (q, i) => q - (c.target_Q1[i] + c.target_Q2[i]) / 2;
  figure(8, pairPicture(c.target_Q1.map(off), c.target_Q2.map(off), r, pairs.map((pair) => believed(...pair)), "Both opinions against the middle of the two"), caption);
  put("tensors", 8, tensor("target_Q1, target_Q2", [n, 2], pairs, { ...lit, dim: (i, j) => !believed(...pairs[i])[j] }), tensor("target_Q", [n], c.smaller, lit));
  const factor = knobs.n_step > 1 ? `${short(chosen.discount)}^${u.batch.steps[r]}` : short(chosen.discount);
  live(9, `y = ${show(u.batch.reward[r])} + (1 − ${c.done[r]}) · ${factor} · ${show(c.smaller[r])} = ${show(c.target[r])}`);
  figure(9, bellmanPicture(u, c, r), c.done[r] ? "Terminated: nothing follows the reward." : "Not terminated: the reward, and the discounted value of what follows.");
  put("tensors", 9, tensor("target_Q", [n], c.target, lit));

  // 10 to 12: the critics learn
  live(10, `Q1 = ${show(u.Q1[r])}, Q2 = ${show(u.Q2[r])}; the target is ${show(c.target[r])}`);
  figure(10, predictionPicture(u, c, r), "Two dots for each row: across, its target value; up, each critic’s value. On the line, both are equal.");
  put("tensors", 10, tensor("Q1, Q2", [n, 2], u.Q1.map((q, i) => [q, u.Q2[i]]), lit));
  const [e1, e2] = [u.Q1[r] - c.target[r], u.Q2[r] - c.target[r]];
  const [loss, over] = isChanged() ? [c.loss, rows < n ? `the ${rows} rows shown` : `all ${n} rows`] : [u.critic_loss, `all ${n} rows`];
  live(11, `row ${r + 1}: (${show(e1)})² + (${show(e2)})² = ${show(e1 * e1 + e2 * e2)}; mean over ${over}: L = ${show(loss)}`);
  const wrong = (values) => values.map((q, i) => q - c.target[i]);
  figure(11, pairPicture(wrong(u.Q1), wrong(u.Q2), r, null, "The error of both critics in each row"), "The error of each critic in each row, the first on the left: above 0, its value is too high.");
  put("tensors", 11, tensor("Q1 − y, Q2 − y", [n, 2], u.Q1.map((q, i) => [q - c.target[i], u.Q2[i] - c.target[i]]), lit));
  const p = u.critic.find((each) => each.name.startsWith("twin1"));
  figure(12, changePicture(p), `Some weights of the first critic. Left, the gradient of the loss for this batch alone. Right, what Adam did: steps of about the learning rate, ${short(knobs.learning_rate)}, or less, however steep the gradient; mostly against it, unless recent batches pointed elsewhere.`);
  live(12, `the first weight of the first critic: ${show(p.before[0][0], 6)}, its gradient ${show(p.gradient[0][0])}; after Adam: ${show(p.after[0][0], 6)}`);
  put("tensors", 12, changeTables(u.critic.filter((each) => each.name.startsWith("twin1"))));

  // 13 to 15: the actor and the targets
  const skips = u.actor === null;
  for (const step of [13, 14, 15]) document.getElementById(`step-${step}`).classList.toggle("skipped", skips);
  const skipped = `update ${u.number}: skipped, as ${u.number} is not a multiple of policy_freq = ${knobs.policy_freq}`;
  const turns = delayPicture(u);
  if (skips) {
    for (const step of [13, 14, 15]) {
      live(step, skipped);
      put("picture", step);
      if (step === 13) figure(13, turns, `Who learns when: the critics at every update, the actor and all targets at every ${ordinal(knobs.policy_freq)}. This one, number ${u.number}, does not change the actor.`);
      put("tensors", step);
    }
  } else {
    const climb = u.climb;
    live(13, `update ${u.number} is a multiple of ${knobs.policy_freq}: π(s) goes from ${list(climb.before[r])} to ${list(climb.after[r])}, and Q1 there from ${show(climb.value_before[r], 5)} to ${show(climb.value_after[r], 5)}`);
    figure(13, [turns, climbPicture(climb, r)], `Above: the critics learn at every update, the actor and all targets at every ${ordinal(knobs.policy_freq)}. Below: the first critic over ${dims > 1 ? "the first dimension of " : ""}the action, in the state of row ${r + 1}. The ring is the actor before, the dot after; the arrow points uphill. The actor follows all rows at once, so for one row it may go down.`);
    put("tensors", 13, changeTables(u.actor));
    for (const [step, name] of [[14, "actor"], [15, "critic"]]) {
      const follow = u.follow[name];
      const [b, model] = [follow[0].before[0], follow[0].model[0]];
      const moved = b + chosen.tau * (model - b);
      live(step, `the first weight: ${short(chosen.tau)} · ${show(model, 6)} + (1 − ${short(chosen.tau)}) · ${show(b, 6)} = ${show(moved, 6)}`);
      figure(step, followPicture(follow), `Some weights. The target (ring) moves ${show(100 * chosen.tau, 3)} % of the way to the network that it follows (bar): to the dot.`);
    }
  }
  document.querySelectorAll("[data-knob]").forEach((input) => {
    const name = input.dataset.knob;
    const value = name === "terminated" ? Boolean(c.done[r]) : chosen[name];
    if (input.type === "checkbox") input.checked = value;
    else input.value = value;
    const readout = input.parentElement.querySelector("output");
    if (readout) readout.textContent = short(value);
  });
}

function changeTables(parameters) {
  return parameters.filter((p) => p.name.endsWith("weight")).slice(0, 2).flatMap((p) => {
    const step = p.after.map((row, i) => row.map((v, j) => v - p.before[i][j]));
    const complete = p.shape.length === 2 && p.shape.every((size) => size <= 16);
    const note = { note: complete ? "" : "a corner" };
    return [
      tensor(p.name, p.shape, p.before, note),
      tensor("gradient of the loss", p.shape, p.gradient, note),
      tensor("change by Adam", p.shape, step, note),
    ];
  });
}

// ---------------------------------------------------------------- pictures

const WIDE = 72; // pixels of a moment
const HIGH = 112;

/** Moments in a row; `at_` gives the state, action and reward of each. */
function frames(count, at_, ...more) {
  const strip = Array.from({ length: count }, (_, i) => {
    const { state, next, action, reward, lit, name } = at_(i);
    const x = i * WIDE;
    const frame = make("rect", {
      x: x + 2, y: 2, width: WIDE - 4, height: HIGH - 4, rx: 5,
      fill: lit ? "var(--lit)" : "var(--card)", stroke: lit ? "var(--mark)" : "var(--line)", "stroke-width": lit ? 2.5 : 1,
    });
    const inside = data.pendulum ? pendulum(x + WIDE / 2, 51, state, action[0], next) : bars(x + 8, 16, WIDE - 16, 56, state);
    const middle_ = { "text-anchor": "middle", class: "soft" };
    return make("g", {}, frame, inside, text(x + WIDE / 2, HIGH - 8, `r ${show(reward, 3)}`, middle_), name ? text(x + WIDE / 2, 14, name, middle_) : null);
  });
  const height = more.length ? HIGH + 50 : HIGH;
  return picture(count * WIDE, height, `${count} moments: state, action and reward of each`, strip, more);
}

function memoryStrip(m) {
  const count = m.reward.length;
  const width = count * WIDE;
  const along = scale(0, Math.max(1, m.size - 1), 4, width - 4);
  const bar = make("g", {},
    make("rect", { x: 2, y: HIGH + 14, width: width - 4, height: 10, rx: 5, fill: "var(--card)", stroke: "var(--line)" }),
    m.sampled.map((age, i) => line(along(age), HIGH + 9, along(age), HIGH + 29, { stroke: i === chosen.row ? "var(--mark)" : "var(--state)", "stroke-width": i === chosen.row ? 4 : 2 })),
    text(2, HIGH + 44, "oldest", { class: "soft" }), text(width - 2, HIGH + 44, "newest", { class: "soft", "text-anchor": "end" }));
  return frames(count, (i) => ({ state: m.state[i], action: m.action[i], reward: m.reward[i], lit: m.sampled.includes(m.shown[i]) }), bar);
}

function pendulum(x, y, state, push, next) {
  // The angle is 0 upright and grows to the left, as Gymnasium draws it.
  const rod = ([cosine, sine], opacity) => line(x, y, x - sine * 24, y - cosine * 24, { stroke: "var(--state)", "stroke-width": 5, "stroke-linecap": "round", opacity });
  // The push turns it: to the left round the pivot (as angles grow) if above 0.
  const [turn, from] = [(push / half[0]) * 1.3, Math.atan2(state[1], state[0])];
  const at_ = (angle) => [x - Math.sin(angle) * 30, y - Math.cos(angle) * 30];
  const arc = Array.from({ length: 13 }, (_, i) => at_(from + (turn * i) / 12));
  const head = Math.abs(turn) < 0.05 ? null : arrow(...arc[10], ...at_(from + turn * 1.08), "var(--action)", 2.5);
  return make("g", {},
    next ? rod(next, 0.35) : null,
    rod(state, 1),
    make("circle", { cx: x, cy: y, r: 3, fill: "var(--ink)" }),
    make("polyline", { points: arc.map((p) => p.map((v) => v.toFixed(1)).join(",")).join(" "), fill: "none", stroke: "var(--action)", "stroke-width": 2.5 }), head);
}

function bars(x, y, width, height, values) {
  if (!values.length) return text(x, y + height / 2, "image", { class: "soft" });
  const each = width / Math.min(24, values.length);
  const largest = Math.max(1e-9, ...data.updates[0].memory.state.flat().map(Math.abs), ...values.map(Math.abs));
  return values.slice(0, 24).map((v, i) => {
    const size = (Math.abs(v) / largest) * (height / 2);
    return make("rect", { x: x + i * each, y: v < 0 ? y + height / 2 : y + height / 2 - size, width: Math.max(1, each - 1), height: Math.max(.5, size), fill: v < 0 ? "var(--minus)" : "var(--plus)" });
  });
}

/** The actor with the output of each unit, if it is small; else its layers as boxes. */
function actorPicture(u, r) {
  const [width, height] = [640, 250];
  const sizes = [data.state_dim, ...data.hidden.actor, dims];
  const x = scale(0, sizes.length - 1, 90, width - 200);
  if (u.actor_network === null) {
    const largest = Math.max(...sizes);
    const boxes = sizes.map((size, i) => {
      const high = 30 + 150 * Math.sqrt(size / largest);
      return make("g", {}, make("rect", { x: x(i) - 16, y: 105 - high / 2, width: 32, height: high, rx: 6, fill: "var(--card)", stroke: "var(--actor)", "stroke-width": 2 }),
        text(x(i), 220, `${size}`, { "text-anchor": "middle" }), i ? arrow(x(i - 1) + 20, 105, x(i) - 20, 105, "var(--soft)") : null);
    });
    return picture(width, 240, `The actor: layers of ${sizes.join(", ")} units`, boxes, text(x(0), 238, "state", { "text-anchor": "middle", class: "soft" }), text(x(sizes.length - 1), 238, "action", { "text-anchor": "middle", class: "soft" }));
  }
  const layers = actors[u.actor_network];
  const outputs = forward(layers, u.batch.state[r]);
  const squashed = outputs.at(-1).map(Math.tanh);
  const y = (depth, i) => ((i + 0.5) / outputs[depth].length) * (height - 10) + 5;
  const largest = layers.map(({ weight }) => Math.max(...weight.values.map(Math.abs)));
  const edges = layers.flatMap(({ weight }, depth) => Array.from({ length: weight.values.length }, (_, k) => {
    const [i, j, value] = [Math.floor(k / weight.shape[1]), k % weight.shape[1], weight.values[k]];
    return line(x(depth), y(depth, j), x(depth + 1), y(depth + 1, i), { stroke: `var(${value < 0 ? "--minus" : "--plus"})`, "stroke-width": 2.5 * Math.abs(value) / largest[depth], opacity: 0.55 });
  }));
  const nodes = outputs.flatMap((values, depth) => values.map((value, i) => {
    const shown = depth === outputs.length - 1 ? squashed[i] : value;
    const share = Math.abs(shown) / Math.max(1e-9, ...(depth === outputs.length - 1 ? [1] : values.map(Math.abs)));
    return make("g", {}, make("circle", { cx: x(depth), cy: y(depth, i), r: 10, fill: "var(--paper)", stroke: "var(--soft)" }),
      make("circle", { cx: x(depth), cy: y(depth, i), r: 10, fill: `var(${shown < 0 ? "--minus" : "--plus"})`, opacity: (0.85 * share).toFixed(3) }));
  }));
  const ins = outputs[0].map((v, i) => text(x(0) - 16, y(0, i) + 4, show(v, 3), { "text-anchor": "end" }));
  const last = outputs.length - 1;
  const outs = squashed.map((v, i) => text(x(last) + 16, y(last, i) + 4, `${show(middle[i])} + ${show(half[i])} · ${show(v)} = ${show(middle[i] + half[i] * v)}`));
  return picture(width, height, `The actor turns ${list(u.batch.state[r])} into ${list(squashed.map((v, i) => middle[i] + half[i] * v))}`, edges, nodes, ins, outs);
}

/** The target's action in every row, on the action's axis. */
function nextActionPicture(u, r) {
  const width = 640;
  const x = scale(data.low[0], data.high[0], 40, width - 40);
  const rings = u.next_action.map((action, i) => make("circle", { cx: x(action[0]), cy: 30, r: 7, fill: i === r ? "var(--actor)" : "var(--paper)", "fill-opacity": i === r ? 1 : 0.4, stroke: "var(--actor)", "stroke-width": 2 }));
  return picture(width, 64, `The target's next action in row ${r + 1} is ${show(u.next_action[r][0])}`, line(x(data.low[0]), 30, x(data.high[0]), 30, { "stroke-width": 2 }),
    [data.low[0], middle[0], data.high[0]].map((v) => make("g", {}, line(x(v), 25, x(v), 35), text(x(v), 56, show(v, 3), { "text-anchor": "middle", class: "soft" }))),
    rings, rings[r].cloneNode());
}

/** The critics' values against the target values. */
function predictionPicture(u, c, r) {
  const all = [...u.Q1, ...u.Q2, ...c.target];
  const [low, high] = ends(all, 0.08);
  const [y, marks] = valueAxis(low, high, 12, 230, 400);
  const x = scale(low, high, 56, 394);
  const dots = (values, colour) => values.map((q, i) => make("circle", { cx: x(c.target[i]), cy: y(q), r: i === r ? 7 : 4.5, fill: colour, opacity: 0.85, stroke: i === r ? "var(--mark)" : "none", "stroke-width": 3 }));
  return picture(400, 270, "Predictions of both critics against the target values", marks, line(x(low), y(low), x(high), y(high), { "stroke-dasharray": "4 4" }),
    dots(u.Q1, "var(--one)"), dots(u.Q2, "var(--two)"), ticks(low, high, 4).map((v) => text(x(v), 248, show(v, 3), { "text-anchor": "middle", class: "soft" })), text(394, 264, "target value y", { "text-anchor": "end", class: "soft" }), text(56, 264, "up: Q1, Q2", { class: "soft" }));
}

/** Gradients of some weights, and how far Adam moved them. */
function changePicture(p) {
  const before = p.before.flat().slice(0, 10);
  const gradient = p.gradient.flat().slice(0, 10);
  const change = p.after.flat().slice(0, 10).map((v, i) => v - before[i]);
  const height = 34 + before.length * 22;
  const column = (values, centre, title) => {
    const size = scale(0, Math.max(1e-12, ...values.map(Math.abs)), 0, 100);
    return [text(centre, 14, title, { "text-anchor": "middle", class: "soft" }), line(centre, 22, centre, height),
      values.map((v, i) => [
        make("rect", { x: v < 0 ? centre - size(-v) : centre, y: 28 + i * 22, width: Math.max(1, size(Math.abs(v))), height: 12, fill: `var(${v < 0 ? "--minus" : "--plus"})` }),
        text(centre + (v < 0 ? 6 : -6), 38 + i * 22, show(v), { "text-anchor": v < 0 ? "start" : "end", class: "soft" }),
      ])].flat(3);
  };
  return picture(640, height + 6, "Gradients of some weights and how far Adam moved each", column(gradient, 170, "gradient of the loss"), column(change, 470, "change by Adam"));
}

/** Which updates around this one update the actor. */
function delayPicture(u) {
  const first = u.number - 2;
  const many = [0, 1, 2, 3, 4].map((k) => first + k).filter((k) => k > 0);
  const x = (k) => 120 + (k - many[0]) * 104;
  const row = (y, name, does, colour) => [text(8, y + 5, name), many.map((k) => make("circle", { cx: x(k), cy: y, r: 9, fill: does(k) ? colour : "var(--paper)", stroke: colour, "stroke-width": 2, "stroke-dasharray": does(k) ? null : "3 3" }))];
  return picture(640, 104, `The actor learns once every ${knobs.policy_freq} updates`,
    make("rect", { x: x(u.number) - 44, y: 2, width: 88, height: 100, rx: 8, fill: "var(--lit)" }),
    many.map((k) => text(x(k), 20, k.toLocaleString("en"), { "text-anchor": "middle", class: k === u.number ? null : "soft" })), text(8, 20, "update", { class: "soft" }),
    row(46, "critics", () => true, "var(--one)").flat(), row(80, "actor, targets", (k) => k % knobs.policy_freq === 0, "var(--actor)").flat());
}

function networksPicture() {
  const box = (x, y, name, colour, dashed) => make("g", {},
    make("rect", { x, y, width: 130, height: 44, rx: 8, fill: "var(--card)", stroke: colour, "stroke-width": 2.5, "stroke-dasharray": dashed ? "6 4" : null }),
    text(x + 65, y + 27, name, { "text-anchor": "middle" }));
  const down = (x) => [arrow(x, 84, x, 146, "var(--soft)"), text(x + 7, 120, "slowly", { class: "soft" })];
  const path = (d, colour) => make("path", { d, fill: "none", stroke: colour, "stroke-width": 2 });
  const middle_ = { "text-anchor": "middle", class: "soft" };
  return picture(720, 300, "Six networks: actor, first and second critic, and a slow copy of each. The actor learns from the first critic; both critics learn from the target value, which comes from the copies",
    box(10, 40, "actor", "var(--actor)"), box(260, 40, "critic 1", "var(--one)"), box(430, 40, "critic 2", "var(--two)"),
    box(10, 146, "actor’s target", "var(--actor)", true), box(260, 146, "critic 1’s target", "var(--one)", true), box(430, 146, "critic 2’s target", "var(--two)", true),
    down(75), down(325), down(495),
    arrow(260, 62, 142, 62, "var(--actor)"), text(201, 54, "which way is up", middle_),
    path("M 140 168 L 200 168 L 200 214 L 495 214", "var(--action)"), arrow(200, 168, 258, 168, "var(--action)"), arrow(495, 214, 495, 191, "var(--action)"), text(200, 232, "next action, with noise", middle_),
    make("rect", { x: 300, y: 250, width: 230, height: 38, rx: 19, fill: "var(--lit)", stroke: "var(--mark)" }), text(415, 274, "target value y: reward + γ · smaller", { "text-anchor": "middle" }),
    arrow(345, 190, 380, 249, "var(--soft)"), arrow(475, 190, 450, 249, "var(--soft)"),
    path("M 531 269 L 640 269 L 640 18 L 325 18", "var(--mark)"), arrow(325, 18, 325, 39, "var(--mark)"), arrow(495, 18, 495, 39, "var(--mark)"),
    text(648, 140, "both learn", { class: "soft" }), text(648, 156, "to predict y", { class: "soft" }));
}

function noisePicture(u, c, r) {
  const shownDims = Math.min(dims, 3);
  const width = 640;
  const parts = [];
  for (let j = 0; j < shownDims; j++) {
    const y = 40 + j * 70;
    const x = scale(data.low[j], data.high[j], 40, width - 40);
    const from = u.next_action[r][j];
    const reach = chosen.noise_clip * half[j];
    const [left, right] = [x(Math.max(data.low[j], from - reach)), x(Math.min(data.high[j], from + reach))];
    const wanted = from + u.noise[r][j] * chosen.policy_noise * half[j];
    parts.push(
      make("rect", { x: left, y: y - 12, width: Math.max(0, right - left), height: 24, fill: "var(--lit)" }),
      line(x(data.low[j]), y, x(data.high[j]), y, { "stroke-width": 2 }),
      ...[data.low[j], middle[j], data.high[j]].map((v) => make("g", {}, line(x(v), y - 5, x(v), y + 5), text(x(v), y + 28, show(v, 3), { "text-anchor": "middle", class: "soft" }))),
      arrow(x(from), y - 18, clamp(x(wanted), 4, width - 4), y - 18, "var(--soft)", 1.5),
      make("circle", { cx: x(from), cy: y, r: 7, fill: "var(--paper)", stroke: "var(--actor)", "stroke-width": 3 }),
      make("circle", { cx: x(c.smoothed[r][j]), cy: y, r: 5, fill: "var(--action)" }));
  }
  return picture(width, 20 + shownDims * 70, `The next action ${show(u.next_action[r][0])} is moved by noise to ${show(c.smoothed[r][0])}`, parts);
}

function valueAxis(low, high, top, bottom, width) {
  const y = scale(low, high, bottom, top);
  const marks = ticks(low, high, 4).map((v) => make("g", {}, line(46, y(v), width, y(v), { class: "line" }), text(42, y(v) + 4, show(v, 3), { "text-anchor": "end", class: "soft" })));
  return [y, marks];
}

/** Two bars for each row, from 0; `lit` says for each row which of the two are lit. */
function pairPicture(first, second, r, lit, label) {
  const all = [0, ...first, ...second];
  const width = 56 + first.length * 62;
  const [y, marks] = valueAxis(...ends(all, 0.01), 12, 190, width);
  const bar = (x, value, colour, bright) => make("rect", {
    x, y: Math.min(y(0), y(value)), width: 18, height: Math.max(1, Math.abs(y(value) - y(0))), fill: colour, opacity: bright ? 1 : 0.3,
    stroke: lit && bright ? "var(--mark)" : "none", "stroke-width": 2,
  });
  const bars_ = first.map((one, i) => {
    const x = 60 + i * 62;
    const bright = lit ? lit[i] : [true, true];
    return make("g", {}, bar(x, one, "var(--one)", bright[0]), bar(x + 22, second[i], "var(--two)", bright[1]),
      text(x + 20, 210, `${i + 1}`, { "text-anchor": "middle", class: i === r ? null : "soft", "font-weight": i === r ? 700 : 400 }));
  });
  return picture(width, 222, label, marks, line(50, y(0), width, y(0)), bars_, text(2, 210, "row", { class: "soft" }));
}

function bellmanPicture(u, c, r) {
  const reward = u.batch.reward[r];
  const later = (1 - c.done[r]) * c.factor[r] * c.smaller[r];
  const all = [0, reward, reward + later];
  const x = scale(Math.min(...all), Math.max(...all), 60, 580);
  const part = (y, from, to, colour, label) => make("g", {},
    make("rect", { x: Math.min(x(from), x(to)), y, width: Math.max(2, Math.abs(x(to) - x(from))), height: 22, fill: colour, opacity: .85 }),
    text(8, y - 5, label, { class: "halo" }));
  return picture(640, 160, `The target value ${show(c.target[r])} is the reward ${show(reward)} plus ${show(later)}`,
    line(x(0), 8, x(0), 142, { "stroke-dasharray": "3 3" }), text(x(0), 156, "0", { class: "soft", "text-anchor": "middle" }),
    part(22, 0, reward, "var(--reward)", `reward ${show(reward)}`),
    part(68, reward, reward + later, "var(--one)", `discounted value of what follows: ${show(later)}`),
    part(114, 0, c.target[r], "var(--mark)", `together: y = ${show(c.target[r])}`));
}

function climbPicture(climb, r) {
  const curve = climb.curves[r];
  const values = [...curve, climb.value_before[r], climb.value_after[r]];
  const [width, bottom] = [640, 200];
  const [y, marks] = valueAxis(...ends(values, 0.1), 14, bottom, width);
  const x = scale(data.low[0], data.high[0], 60, width - 30);
  const path = climb.grid.map((a, i) => `${i ? "L" : "M"}${x(a).toFixed(1)} ${y(curve[i]).toFixed(1)}`).join(" ");
  const [a0, a1] = [climb.before[r][0], climb.after[r][0]];
  const near = climb.grid.reduce((best, a, i) => (Math.abs(a - a0) < Math.abs(climb.grid[best] - a0) ? i : best), 0);
  const [left, right] = [Math.max(0, near - 1), Math.min(climb.grid.length - 1, near + 1)];
  const up = Math.sign(curve[right] - curve[left]) || 1;
  const [px, py] = [x(climb.grid[left]) - x(climb.grid[right]), y(curve[left]) - y(curve[right])];
  const size = Math.hypot(px, py) || 1;
  const tip = [x(a0) - up * (px / size) * 60, y(climb.value_before[r]) - up * (py / size) * 60];
  return picture(width, 240, `Q1 over actions; the actor goes from ${show(a0)} to ${show(a1)}`, marks,
    make("path", { d: path, fill: "none", stroke: "var(--one)", "stroke-width": 2.5 }),
    arrow(x(a0), y(climb.value_before[r]), tip[0], tip[1], "var(--actor)", 3),
    make("circle", { cx: x(a0), cy: y(climb.value_before[r]), r: 7, fill: "var(--paper)", stroke: "var(--actor)", "stroke-width": 3 }),
    make("circle", { cx: x(a1), cy: y(climb.value_after[r]), r: 4, fill: "var(--actor)" }),
    ticks(data.low[0], data.high[0], 5).map((v) => text(x(v), bottom + 20, show(v, 3), { "text-anchor": "middle", class: "soft" })),
    text(width - 30, bottom + 36, "action", { "text-anchor": "end", class: "soft" }));
}

function followPicture(follow) {
  const shown = follow.filter((p) => p.name.endsWith("weight")).flatMap((p) => p.before.map((b, i) => [b, p.model[i]])).slice(0, 6);
  const [left, right] = [110, 530];
  const x = scale(0, 1, left, right);
  const lines = shown.map(([before, model], i) => {
    const y = 30 + i * 24;
    return make("g", {}, line(left, y, right, y, { class: "line", "stroke-width": 2 }),
      make("circle", { cx: left, cy: y, r: 7, fill: "var(--paper)", stroke: "var(--soft)", "stroke-width": 2 }),
      line(right, y - 8, right, y + 8, { stroke: "var(--one)", "stroke-width": 4 }),
      make("circle", { cx: x(chosen.tau), cy: y, r: 4, fill: "var(--mark)" }),
      text(left - 14, y + 4, show(before, 6), { "text-anchor": "end" }), text(right + 14, y + 4, show(model, 6)));
  });
  return picture(640, 30 + shown.length * 24, "Weights of the target, and how far they move towards those of the network that it follows", lines,
    text(left - 14, 12, "target", { "text-anchor": "end", class: "soft" }), text(right + 14, 12, "network", { class: "soft" }));
}

function surfaces() {
  if (!data.stages.length) return;
  document.getElementById("training").hidden = false;
  const span = (stages, key) => { const all = stages.flatMap((stage) => stage[key].flat()); return [Math.min(...all), Math.max(...all)]; };
  const map = (stage, key, title, [low, high]) => make("figure", {}, make("figcaption", {}, stage.name),
    make("div", { class: "map-axes" },
      make("div", { class: "up" }, make("span", {}, "8"), make("span", {}, "speed"), make("span", {}, "−8")),
      colourMap(stage[key], low, high, `${title}, ${stage.name}`),
      make("div", { class: "across" }, make("span", {}, "−π"), make("span", {}, "upright"), make("span", {}, "π"))),
    make("figcaption", {}, `from ${show(low, 3)} (dark) to ${show(high, 3)} (yellow)`));
  const row = (key, title, range) => [make("h3", {}, title), make("div", { class: "maps" }, data.stages.map((stage) => map(stage, key, title, range(stage))))];
  document.getElementById("surfaces").append(
    ...row("value", "The critic’s value", (stage) => span([stage], "value")), ...row("action", "The actor’s action", () => [data.low[0], data.high[0]]));
}

/** The critic's estimate and the return, with one of the three ideas left out. */
function experiments() {
  const remarks = {
    "TD3 as it is": "The smaller of two estimates is cautious: it is below the return.",
    "without twins": "One critic, always believed. Its estimate stays above the return: it learns from its own over-estimation, again and again.",
    "without delay": "The actor and the targets move at every update. On a task as easy as this, that is only faster.",
    "without smoothing": "The next action is valued without noise around it, so the estimate is a little higher.",
  };
  const spread = (rows, step) => {
    const values = rows.map((row) => row[step]);
    return [values.reduce((a, b) => a + b, 0) / values.length, Math.min(...values), Math.max(...values)];
  };
  const lines = (experiment, key, name, more) => {
    const all = experiment.steps.map((_, i) => spread(experiment[key], i));
    return { name, steps: experiment.steps, values: all.map((v) => v[0]), low: all.map((v) => v[1]), high: all.map((v) => v[2]), ...more };
  };
  const late = data.experiments.experiments.map((experiment, k) => {
    const from = experiment.steps.findIndex((step) => step >= 5000);
    const off = experiment.estimated_Q.map((row, i) => row.slice(from).map((v, j) => v - experiment.true_Q[i][from + j]));
    const all = experiment.steps.slice(from).map((_, i) => spread(off, i));
    const [values, low, high] = [0, 1, 2].map((part) => all.map((v) => v[part]));
    return { name: experiment.name, steps: experiment.steps.slice(from), values, low, high, colour: `var(${["--ink", "--two", "--action", "--state"][k]})` };
  });
  document.getElementById("apart").append(chart({ title: "Estimate minus return, from step 5,000 on: above 0, the critic over-estimates", x: "step", y: "estimate minus return", series: late, width: 760, height: 300, zero: true }));
  document.getElementById("experiments").append(...data.experiments.experiments.map((experiment) => make("div", {},
    chart({
      title: experiment.name, x: "step", y: "value at the start of an episode",
      series: [lines(experiment, "estimated_Q", "estimate", { colour: "var(--two)" }), lines(experiment, "true_Q", "return", { colour: "var(--reward)" })],
    }),
    make("p", {}, gap(experiment), " ", remarks[experiment.name] || ""))));
}

/** The critic's error at the end, in words. */
function gap(experiment) {
  const off = experiment.estimated_Q.map((row, i) => row.at(-1) - experiment.true_Q[i].at(-1));
  const mean = off.reduce((a, b) => a + b, 0) / off.length;
  return `At the end, the estimate is ${show(Math.abs(mean), 3)} ${mean < 0 ? "below" : "above"} the return (mean of ${off.length} seeds; ${off.filter((v) => v > 0).length} of them above).`;
}

/** Dark blue over green to yellow. */
function colour(share) {
  const stops = [[43, 20, 90], [49, 104, 142], [53, 183, 121], [253, 231, 37]];
  const at_ = clamp(share, 0, 1) * (stops.length - 1);
  const i = Math.min(stops.length - 2, Math.floor(at_));
  return stops[i].map((v, k) => Math.round(v + (stops[i + 1][k] - v) * (at_ - i)));
}

function colourMap(values, low, high, label) {
  const size = values.length;
  const canvas = make("canvas", { width: size, height: size, class: "map", role: "img", "aria-label": label });
  const context = canvas.getContext("2d");
  const image = context.createImageData(size, size);
  values.forEach((row, i) => row.forEach((value, j) => {
    const at_ = ((size - 1 - i) * size + j) * 4; // speed grows upwards
    image.data.set([...colour((value - low) / (high - low || 1)), 255], at_);
  }));
  context.putImageData(image, 0, 0);
  return canvas;
}

// ---------------------------------------------------------------- the page

function set(name, value) {
  chosen = { ...chosen, [name]: value };
  if (name === "row" || name === "update") chosen.terminated = null;
  render();
}

function wire() {
  const update = document.getElementById("update");
  data.updates.forEach((u, i) => update.append(make("option", { value: i }, `${u.number} (${u.actor ? "with" : "without"} the actor)`)));
  const row = document.getElementById("row");
  for (let i = 0; i < data.rows; i++) row.append(make("option", { value: i }, `${i + 1}`));
  const choose = () => { update.value = chosen.update; row.value = chosen.row; };
  choose();
  update.addEventListener("change", () => set("update", Number(update.value)));
  row.addEventListener("change", () => set("row", Number(row.value)));
  document.getElementById("reset").addEventListener("click", () => { chosen = recorded(); choose(); render(); });
  document.querySelectorAll("[data-knob]").forEach((input) => {
    const name = input.dataset.knob;
    const why = !criticTargets.length && ["policy_noise", "noise_clip"].includes(name) ? "the critics are too large to compute with in the page"
      : knobs.n_step > 1 && name === "discount" ? `the rewards of up to ${knobs.n_step} steps are already summed with it` : "";
    if (why) {
      input.disabled = true;
      input.parentElement.append(make("span", { class: "facts" }, `(fixed: ${why})`));
    }
    if (input.type === "range") input.max = Math.max(input.max, knobs[name]);
    const read = { checkbox: () => Number(input.checked), range: () => Number(input.value) }[input.type] || (() => input.value);
    input.addEventListener("input", () => set(name, read()));
  });
  for (const [step, { file, first, lines }] of Object.entries(data.source)) {
    const pre = at("source", step);
    pre.previousElementSibling.textContent = `the code: ${file}, line ${first}`;
    pre.append(...lines.flatMap((code, i) => [make("span", { class: "at" }, `${first + i}`), `${code}\n`]));
  }
  for (const id of data.pendulum ? ["pendulum", "never"] : []) document.getElementById(id).hidden = false;
  document.getElementById("exploration").textContent = `its standard deviation is ${knobs.exploration_noise.map(short).join(", ")} of half the range`;
  document.getElementById("random").textContent = knobs.random_steps.toLocaleString("en");
  const v = data.about.versions;
  document.getElementById("facts").textContent = `${data.env}, seed ${data.about.seed}, after ${Number(data.about.step).toLocaleString("en")} steps of play: updates ${data.updates.map((u) => u.number.toLocaleString("en")).join(" and ")}.${data.about.run ? ` Run ${data.about.run}.` : " A tiny agent, small enough to show every number."}`;
  document.getElementById("made").textContent = `Made by ${data.about.command || "t3d"} with T3D ${v.t3d}, PyTorch ${v.torch}, Gymnasium ${v.gymnasium}.`;
  keys();
}

/** Arrow keys go from step to step; the bar marks the current one. */
function keys() {
  const links = [...document.querySelectorAll("nav.steps a")];
  const sections = [...document.querySelectorAll("section.step:not([hidden])")].filter((s) => s.id.startsWith("step-"));
  const here = () => sections.reduce((best, s, i) => (s.getBoundingClientRect().top < innerHeight * 0.4 ? i : best), -1);
  const mark = () => {
    const now = here();
    links.forEach((a, i) => (i === now ? a.setAttribute("aria-current", "step") : a.removeAttribute("aria-current")));
  };
  addEventListener("scroll", mark, { passive: true });
  mark();
  addEventListener("keydown", (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const taken = event.altKey || event.ctrlKey || event.metaKey || event.shiftKey;
    if (!by || taken || event.target.closest("input, select, figure[tabindex], pre")) return; // those move by themselves
    const next = sections[clamp(here() + by, 0, sections.length - 1)];
    event.preventDefault();
    next.scrollIntoView();
    next.querySelector("h2").focus({ preventScroll: true });
  });
}

wire();
render();
surfaces();
experiments();
window.t3d = { compute, difference, data };
