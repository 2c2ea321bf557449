"use strict";
// Runs, from their folders. Everything is drawn from the data, which --watch fetches again.

let data = JSON.parse(document.getElementById("data").textContent);

const count = (value) => Math.round(value).toLocaleString("en");
const score = (value) => minus(value.toLocaleString("en", { maximumFractionDigits: Math.abs(value) < 10 ? 2 : 1 }));

const percent = (share) => `${Math.round(100 * share)} %`;

function clock(seconds) {
  const [h, m, s] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, Math.round(seconds) % 60];
  return h ? `${h} h ${m} min` : m ? `${m} min ${s} s` : `${s} s`;
}

/** The score of a run, and how it was measured. */
function figureOf(run) {
  const { best, score: tested } = run;
  if (tested) return [score(tested.mean), `mean of ${tested.episodes} test episodes, ± ${score(tested.std)}${"success" in tested ? `, success ${percent(tested.success)}` : ""}; the agent of step ${count(tested.step)}`];
  const spread = best && best.std !== null ? `, ± ${score(best.std)} over ${best.episodes} episodes` : "";
  if (best) return [score(best.mean), `best evaluation${spread}, at step ${count(best.step)}`];
  return ["–", "no evaluation yet"];
}

function section(title, ...children) {
  return make("section", { class: "step" }, make("h2", {}, title), ...children.flat());
}

/** A line of a run for a chart; null if the run has none of it. */
function of(run, part, key, more = {}) {
  const found = run[part];
  if (!found[key] || !found[key].some((v) => v !== null)) return null;
  return { name: data.runs.length > 1 ? run.name : key.replaceAll("_", " "), steps: found.steps, values: found[key], ...more };
}

const colour = (i) => `var(${COLOURS[i % COLOURS.length]})`;

/** For each environment, a chart with a line for each run that has one. */
function perRun(title, part, key, y, options = {}) {
  const envs = [...new Set(data.runs.map((run) => run.env))];
  return envs.flatMap((env) => {
    const series = data.runs.map((run, i) => (run.env === env ? of(run, part, key, { colour: colour(i) }) : null)).filter(Boolean);
    const name = envs.length > 1 ? `${env}: ${title.toLowerCase()}` : title;
    return series.length ? chart({ title: name, x: "step", y, series, ...options }) : [];
  });
}

function head(run) {
  const { verdict } = run;
  const [figure, what] = figureOf(run);
  return make("div", { class: `verdict ${verdict.mood}` },
    make(data.runs.length > 1 ? "h3" : "h2", {}, verdict.word),
    make("p", { class: "figure" }, figure, " ", make("span", {}, what)),
    make("p", { class: "facts" }, `${run.env}, seed ${run.seed}, preset ${run.preset}, engine ${run.engine}. ${run.state}, step ${count(run.step)} of ${count(run.steps)}, ${clock(run.seconds)}.`),
    make("progress", { max: run.steps, value: run.step, "aria-label": `step ${run.step} of ${run.steps}` }),
    make("ul", {}, verdict.sentences.map((sentence) => make("li", {}, sentence)), run.notes.map((note) => make("li", { class: "changed" }, `step ${count(note.step)}: ${note.text}`))));
}

/** Several runs at a glance: a sentence for each curve, and a line for each run. */
function summary() {
  const groups = Object.entries(data.curves).flatMap(([env, lines]) => lines.map((line) => {
    const [step, mean] = [line.steps.at(-1), line.mean.at(-1)];
    const band = line.low ? `, 95 % interval ${score(line.low.at(-1))} to ${score(line.high.at(-1))}` : "";
    return make("p", {}, `${env}, ${line.label}: `, make("strong", {}, score(mean)), ` at step ${count(step)}, the last that all share: the mean of ${line.seeds.length} seed${line.seeds.length > 1 ? "s" : ""}${band}.`);
  }));
  const rows = data.runs.map((run) => [run.name, run.verdict.word, ...figureOf(run), `${run.state}, step ${count(run.step)} of ${count(run.steps)}`]);
  return section("At a glance", groups, table(rows, ["run", "verdict", "score", "measured as", "state"]));
}

const large = { width: 760, height: 300 };

function learning() {
  const charts = Object.entries(data.curves).map(([env, lines]) => chart({
    title: `${env}: evaluation return`, x: "step", y: "return", ...large,
    series: lines.flatMap((line, i) => {
      const seeds = line.seeds.length > 1 ? `${line.seeds.length} seeds, mean and 95 % interval` : `seed ${line.seeds[0]}`;
      const name = `${line.label}, ${seeds}`;
      const thin = (line.each || []).map((values) => ({ name, steps: line.steps, values, colour: colour(i), thin: true }));
      return [...thin, { name, steps: line.steps, values: line.mean, low: line.low, high: line.high, colour: colour(i) }];
    }),
  }));
  const every = Math.max(...data.runs.map((run) => run.episodes.every));
  const note = every > 1 ? ` (means of up to ${every} episodes)` : "";
  return section("Learning curves", make("p", {}, "Evaluations are episodes without noise, from which the agent does not learn. Training episodes have exploration noise."),
    charts, perRun(`Return of training episodes${note}`, "episodes", "return", "return", large));
}

function values() {
  const charts = data.runs.map((run) => {
    const lines = [
      of(run, "evaluations", "estimated_Q", { name: "estimate of the critic", colour: "var(--two)" }),
      of(run, "evaluations", "true_Q", { name: "discounted return", colour: "var(--reward)" }),
    ].filter(Boolean);
    return lines.length ? chart({ title: `${run.name}: value at the start of an episode`, x: "step", y: "value", series: lines, ...(data.runs.length > 1 ? {} : large) }) : null;
  }).filter(Boolean);
  return section("Does the critic over-estimate?",
    make("p", {}, "The first critic’s estimate at the start of the evaluation’s episodes, and the discounted return of those episodes. An estimate far above the return is over-estimation, which the twin critics should prevent; a little below is usual for TD3."),
    charts.length ? make("div", { class: "charts" }, charts) : make("p", {}, "This run did not record it."));
}

/** For each environment, a chart with a line of evaluations and one of training; of several runs, one line each. */
function perRunAndKind(title, y, evaluation, training, options = {}) {
  const envs = [...new Set(data.runs.map((run) => run.env))];
  const several = data.runs.length > 1;
  return envs.flatMap((env) => {
    const series = data.runs.flatMap((run, i) => {
      if (run.env !== env) return [];
      const lines = [["evaluation", evaluation(run)], ["training", training(run)]].filter(([, each]) => each && each.values.some((v) => v !== null));
      return (several ? lines.slice(0, 1) : lines).map(([kind, each], k) => ({ ...each, name: several ? `${run.name}, ${kind}` : kind, colour: colour(several ? i : k) }));
    });
    return series.length ? chart({ title: envs.length > 1 ? `${env}: ${title}` : title, x: "step", y, series, ...options }) : [];
  });
}

/** What the environments' info came to; null if it came to nothing. */
function reported() {
  const of = (part, values) => (values ? { steps: part.steps, values } : null);
  const rates = perRunAndKind("Success rate", "share of episodes",
    (run) => of(run.evaluations, run.evaluations.success), (run) => of(run.train, run.train.success_rate), { zero: true, ...large });
  const names = [...new Set(data.runs.flatMap((run) => [...run.info.evaluations.lines, ...run.info.episodes.lines].map(([name]) => name)))].slice(0, 32);
  const line = (part, name) => of(part, part.lines.find(([each]) => each === name)?.[1]);
  const numbers = names.flatMap((name) => perRunAndKind(name, "mean of an episode",
    (run) => line(run.info.evaluations, name), (run) => line(run.info.episodes, name)));
  if (!rates.length && !numbers.length) return null;
  const words = "From the info that the environment returns with each step.";
  return section("What the environment reports",
    make("p", {}, rates.length ? `${words} Success is that of the last step of an episode; the rate of training is over up to 100 episodes.` : words),
    rates, numbers.length ? make("div", { class: "charts" }, numbers) : []);
}

function details() {
  const speed = data.runs.map((run) => {
    const rates = run.train.steps_per_second.filter((v) => v !== null);
    return rates.length ? `${data.runs.length > 1 ? `${run.name}: ` : ""}${count(rates.at(-1))} steps per second at the end` : null;
  }).filter(Boolean).join("; ");
  return section("How it learned", make("div", { class: "charts" }, [
    perRun("Critic loss", "train", "critic_loss", "loss", { zero: true }),
    perRun("Actor loss", "train", "actor_loss", "loss"),
    perRun("Mean Q of a batch", "train", "mean_Q", "Q"),
    perRun("Actions at a limit of their range", "train", "saturation", "share of the last 1,000", { zero: true }),
    perRun("Exploration noise", "train", "exploration", "in half-ranges; 1 is random play", { zero: true }),
    perRun("Speed", "train", "steps_per_second", "steps per second", { zero: true }),
    perRun("Length of training episodes", "episodes", "length", "steps", { zero: true }),
  ].flat()), speed ? make("p", { class: "facts" }, speed) : null);
}

function videos() {
  const shown = data.runs.filter((run) => run.video);
  if (!shown.length) return null;
  return section("An episode", make("div", { class: "charts" }, shown.map((run) =>
    make("figure", {}, make("video", { src: run.video, controls: "", loop: "", muted: "", preload: "metadata", "aria-label": `an episode of ${run.name}` }),
      make("figcaption", {}, run.name)))));
}

function table(rows, names) {
  return make("div", { class: "wide", tabindex: "0" }, make("table", { class: "facts-table" }, make("thead", {}, make("tr", {}, names.map((name) => make("th", { scope: "col" }, name)))),
    make("tbody", {}, rows.map((row) => make("tr", {}, row.map((cell, i) => make(i ? "td" : "th", i ? {} : { scope: "row" }, cell)))))));
}

function about(run) {
  const differ = run.knobs.filter((knob) => knob.differs);
  const typed = (command) => make("pre", {}, make("code", {}, command));
  const versions = Object.entries(run.versions).map(([name, v]) => `${name} ${v}`).join(", ");
  return section(data.runs.length > 1 ? `About ${run.name}` : "About this run", data.runs.length > 1 ? head(run) : [],
    make("h3", {}, "Made by"), typed(run.command || "(called from Python)"),
    make("h3", {}, "Resume it"), typed(run.resume),
    make("h3", {}, `What differs from preset ${run.preset}`),
    differ.length ? table(differ.map((knob) => [knob.name, knob.value, knob.preset]), ["knob", "here", "preset"]) : make("p", {}, "Nothing."),
    make("details", {}, make("summary", {}, "Every knob"), table(run.knobs.map((knob) => [knob.name, knob.value]), ["knob", "value"])),
    make("p", { class: "facts" }, `${versions}. Folder ${run.path}.`));
}

function render() {
  document.title = data.title;
  document.getElementById("title").textContent = data.title.replace("T3D, ", "");
  document.getElementById("written").textContent = `Written ${data.written}${data.version ? "; updates itself" : ""}.`;
  document.getElementById("main").replaceChildren(...[
    data.runs.length > 1 ? summary() : head(data.runs[0]), learning(), reported(), values(), details(), videos(), ...data.runs.map(about),
  ].filter(Boolean));
}

/** Fetch new data, but not while somebody points at a chart or watches a video. */
async function follow() {
  const busy = document.querySelector("figure.chart:hover, figure.chart svg:focus") || [...document.querySelectorAll("video")].some((video) => !video.paused);
  document.getElementById("paused").textContent = busy ? " Updates wait while you point at a chart or watch the video." : "";
  if (!busy) {
    const trouble = document.getElementById("trouble");
    try {
      const answer = await fetch(`data.json?version=${encodeURIComponent(data.version)}`);
      if (answer.status === 200) {
        data = await answer.json();
        const open = [...document.querySelectorAll("details")].map((each) => each.open);
        const key = document.activeElement.dataset.key;
        render();
        if (key) document.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus();
        document.querySelectorAll("details").forEach((each, i) => { each.open = Boolean(open[i]); });
      }
      trouble.textContent = answer.status >= 400 ? await answer.text() : "";
    } catch {
      trouble.textContent = "t3d report --watch has ended: this is the last state that it showed.";
    }
  }
  setTimeout(follow, 2000);
}

render();
if (data.version) setTimeout(follow, 2000);
