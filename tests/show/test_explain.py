"""The page that walks through one update: its numbers are the trainer's, and it works."""

import copy
import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import t3d
from helpers.commands import assert_refused
from helpers.runs import TINY, trained
from t3d.cli.main import main
from t3d.learn.replay.memory import ReplayBuffer
from t3d.learn.t3d import T3D
from t3d.run import checkpoint
from t3d.run.folder import RunFolder
from t3d.show import explain
from t3d.show.html import numbers

# One browser, and runs that are trained once: in one process.
pytestmark = pytest.mark.xdist_group("pages")

STEPS = range(1, 16)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`t3d explain` from nothing, with less training than it takes by default."""
    out = tmp_path_factory.mktemp("explain") / "page.html"
    quick = dataclasses.replace(explain.TINY, steps=400, random_steps=200, eval_every=0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(explain, "TINY", dataclasses.replace(quick, eval_episodes=1))
        assert main(["explain", "--out", str(out)]) == 0
    return out


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with several actions, n-step returns and a delay of its own."""
    path = tmp_path_factory.mktemp("run") / "hopper"
    knobs: dict[str, Any] = {"n_step": 3, "policy_freq": 3, "hidden": (20, 20), "reward_scale": 0.5}
    t3d.train("Hopper-v5", run=path, quiet=True, **(TINY | knobs))
    assert main(["explain", str(path)]) == 0
    return path


def learned(run: Path) -> tuple[T3D, ReplayBuffer]:
    """Agent and memory of a run, just before the page's first update."""
    folder = RunFolder.open(run)
    newest = checkpoint.newest_valid(folder)
    assert newest is not None
    agent = T3D.load(newest.path / "agent.safetensors")
    config = folder.config()
    memory = ReplayBuffer(config.capacity, agent.layout, agent.action_dim, num_envs=config.num_envs)
    checkpoint.load_learned(newest, agent, memory)
    while (agent.updates + 2) % config.policy_freq:
        agent.train(memory, 1)
    return agent, memory


def test_the_numbers_of_the_page_are_the_trainers(run: Path, open_page: Any) -> None:
    """Both updates done again, by the trainer and without a trace."""
    data = open_page(run / "explain.html").data()
    agent, memory = learned(run)
    for shown in data["updates"]:
        draw, smooth = copy.deepcopy(agent.sampling), copy.deepcopy(agent.smoothing)
        drawn = agent.sampler.draw(memory, agent.config.batch_size, draw)
        seen = agent.perceive(memory.batch(drawn, 3, agent.config.discount))
        for name in ("state", "action", "reward", "next_state", "done", "steps"):
            assert shown["batch"][name] == numbers(getattr(seen, name).detach())
        noise = smooth.standard_normal((agent.config.batch_size, agent.action_dim), np.float32)
        assert shown["noise"] == numbers(noise)
        with torch.no_grad():
            assert shown["next_action"] == numbers(agent.actor_target(seen.next_state))
            Q1, Q2 = agent.critic(seen.state, seen.action)
        assert (shown["Q1"], shown["Q2"]) == (numbers(Q1), numbers(Q2))
        measured = agent.train(memory, 1)
        assert shown["number"] == agent.updates
        assert shown["critic_loss"] == pytest.approx(float(measured["critic_loss"]))
        weights = dict(agent.critic.named_parameters())
        for parameter in shown["critic"]:
            corner = weights[parameter["name"]].detach()[:16]
            corner = corner[:, :16] if corner.ndim == 2 else corner[None]
            assert parameter["after"] == numbers(corner)
        assert (shown["actor"] is not None) == ("actor_loss" in measured)
    assert data["updates"][0]["actor"] is None
    for parameter in data["updates"][1]["follow"]["critic"]:
        target = dict(agent.critic_target.named_parameters())[parameter["name"]]
        assert parameter["after"] == numbers(target.reshape(-1)[:12])


def test_what_the_page_computes_is_what_was_recorded(tiny: Path, run: Path, open_page: Any) -> None:
    for path in (tiny, run / "explain.html"):
        assert open_page(path).page.evaluate("t3d.difference()") < 1e-5


def test_the_actor_that_is_drawn_plays_as_the_agent(tiny: Path, open_page: Any) -> None:
    page = open_page(tiny).page
    data = page.evaluate("t3d.data")
    for i, action in enumerate(data["updates"][1]["climb"]["before"]):
        page.select_option("#row", index=i)
        label = page.locator('[data-picture="2"] svg').get_attribute("aria-label")
        drawn = number(label.rpartition(" into ")[2])
        assert drawn == pytest.approx(action[0], rel=1e-3, abs=1e-4)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_every_step_is_there_and_nothing_sticks_out(
    tiny: Path, run: Path, open_page: Any, width: int, scheme: str
) -> None:
    for path in (tiny, run / "explain.html"):
        opened = open_page(path, width, color_scheme=scheme)
        assert opened.overflow() == 0
        for step in STEPS:
            section = opened.page.locator(f"#step-{step}")
            assert section.is_visible()
            assert section.locator("math").count() == 1
            assert section.locator(".live").inner_text().strip()
            assert section.locator("svg").count() >= 1
            assert section.locator("pre").inner_text().strip()
        assert opened.page.locator("#experiments svg").count() == 4
        assert path.stat().st_size < 3_000_000


def number(text: str) -> float:
    return float(text.replace("−", "-"))


def live(page: Any, step: int) -> str:
    return str(page.locator(f'[data-live="{step}"]').inner_text())


def table(page: Any, step: int, which: int = -1) -> list[list[float]]:
    """The numbers of a table of a step."""
    element = page.locator(f'[data-tensors="{step}"] table').all()[which]
    rows = [row.locator("td").all_inner_texts() for row in element.locator("tr").all()]
    return [[number(text) for text in row] for row in rows]


def slide(page: Any, knob: str, value: float) -> None:
    page.locator(f'[data-knob="{knob}"]').fill(str(value))


def test_each_control_changes_the_right_numbers(tiny: Path, open_page: Any) -> None:
    page = open_page(tiny).page
    data = page.evaluate("t3d.data")
    shown, row = data["updates"][1], data["row"]
    reward = np.array(shown["batch"]["reward"])
    before = {step: live(page, step) for step in STEPS}

    slide(page, "policy_noise", 0)
    assert table(page, 6) == pytest.approx(np.array(shown["next_action"]), rel=1e-3, abs=1e-4)
    assert live(page, 10) != before[10]  # the target follows from it
    assert "not what the run did" in page.locator("#changed").inner_text()
    slide(page, "policy_noise", 1)
    slide(page, "noise_clip", 0.05)
    noise = np.clip(np.array(shown["noise"]), -0.05, 0.05)
    assert table(page, 6, 0) == pytest.approx(noise, rel=1e-3, abs=1e-4)
    page.click("#reset")
    assert {step: live(page, step) for step in STEPS} == before
    assert page.locator("#changed").inner_text() == ""

    both = np.array([shown["target_Q1"], shown["target_Q2"]])
    for choice, expected in (("mean", both.mean(0)), ("first", both[0]), ("min", both.min(0))):
        page.select_option('[data-knob="combine"]', choice)
        assert np.ravel(table(page, 8)) == pytest.approx(expected, rel=1e-3, abs=1e-4)

    slide(page, "discount", 0)
    assert np.ravel(table(page, 9)) == pytest.approx(reward, rel=1e-3, abs=1e-4)
    slide(page, "discount", 0.5)
    halved = reward + 0.5 * both.min(0)
    assert np.ravel(table(page, 9)) == pytest.approx(halved, rel=1e-3, abs=1e-4)
    page.check('[data-knob="terminated"]')
    halved[row] = reward[row]
    assert np.ravel(table(page, 9)) == pytest.approx(halved, rel=1e-3, abs=1e-4)
    page.click("#reset")

    follow = shown["follow"]["actor"][0]
    for tau, expected in ((1, follow["model"][0]), (0, follow["before"][0])):
        slide(page, "tau", tau)
        value = number(live(page, 14).rpartition("= ")[2])
        assert value == pytest.approx(expected, rel=1e-4)


def test_where_a_batch_is_larger_than_what_is_shown_it_says_what_is_averaged(
    tmp_path: Path, open_page: Any
) -> None:
    path = tmp_path / "run"
    t3d.train("Pendulum-v1", run=path, quiet=True, **(TINY | {"batch_size": 20}))
    assert main(["explain", str(path)]) == 0
    page = open_page(path / "explain.html").page
    assert "mean over all 20 rows" in live(page, 11)
    slide(page, "discount", 0)
    shown = page.evaluate("t3d.data")["updates"][1]
    wrong = [np.array(shown[q]) - shown["batch"]["reward"] for q in ("Q1", "Q2")]
    text = live(page, 11)
    assert "mean over the 8 rows shown" in text
    assert number(text.rpartition("= ")[2]) == pytest.approx(
        sum(float(np.mean(w**2)) for w in wrong), rel=1e-3
    )


def test_the_discount_of_summed_rewards_cannot_be_changed(run: Path, open_page: Any) -> None:
    page = open_page(run / "explain.html").page
    assert page.locator('[data-knob="discount"]').is_disabled()
    assert "rewards of up to 3 steps" in page.locator("#step-9").inner_text()


def test_normalised_states_are_drawn_as_they_were(tmp_path: Path, open_page: Any) -> None:
    path = tmp_path / "run"
    knobs: dict[str, Any] = {"normalize_observations": True, "reward_scale": 0.1}
    t3d.train("Pendulum-v1", run=path, quiet=True, **(TINY | knobs))
    assert main(["explain", str(path)]) == 0
    page = open_page(path / "explain.html").page
    assert page.evaluate("t3d.difference()") < 1e-5
    stored = np.array(page.evaluate("t3d.data.updates[1].stored.state"))
    assert stored[:, 0] ** 2 + stored[:, 1] ** 2 == pytest.approx(np.ones(8), abs=1e-5)
    assert "normalised" in live(page, 4)
    assert "multiplied by 0.1" in live(page, 4)


def test_the_strip_shows_one_environment_in_its_order(tmp_path: Path) -> None:
    """Three pendulums in parallel: in the strip, each state follows from the one before."""
    path = tmp_path / "run"
    knobs = {"num_envs": 3, "capacity": 45, "max_episode_steps": 200}
    t3d.train("Pendulum-v1", run=path, quiet=True, **(TINY | knobs))
    agent, memory = learned(path)
    data = explain.page_data(agent, memory, {"step": 60}, {})
    for update in data["updates"]:
        strip = update["memory"]
        assert len(strip["shown"]) == 12
        assert strip["sampled"][data["row"]] in strip["shown"]
        for here, action, after in zip(strip["state"], strip["action"], strip["state"][1:]):
            # Gymnasium's own pendulum: how fast it turns next.
            speed = here[2] + (15 * here[1] + 3 * action[0]) * 0.05
            assert after[2] == pytest.approx(np.clip(speed, -8, 8), abs=1e-3)


def test_the_update_without_the_actor_skips_its_steps(tiny: Path, open_page: Any) -> None:
    page = open_page(tiny).page
    page.select_option("#update", index=0)
    for step in (13, 14, 15):
        assert "skipped" in live(page, step)
        assert "skipped" in (page.locator(f"#step-{step}").get_attribute("class") or "")
    assert "skipped" not in live(page, 12)
    # Its own rows, and not those of the other.
    first, second = page.evaluate("t3d.data.updates.map(u => u.memory.sampled)")
    assert first != second
    page.select_option("#update", index=1)
    assert "skipped" not in live(page, 13)


def test_the_keyboard_goes_through(tiny: Path, open_page: Any) -> None:
    page = open_page(tiny, reduced_motion="reduce").page
    for step in STEPS:
        page.keyboard.press("ArrowRight")
        assert page.evaluate("document.activeElement.id") == f"name-{step}"
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("document.activeElement.id") == "name-14"
    # On a control, the same keys are the control's.
    page.locator('[data-knob="tau"]').focus()
    before = live(page, 14)
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.dataset.knob") == "tau"
    assert live(page, 14) != before
    # Everything that can be worked is reached by Tab.
    page.evaluate("document.activeElement.blur()")
    page.evaluate("window.scrollTo(0, 0)")
    reached = set()
    for _ in range(200):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.dataset.knob || ''"))
    wanted = {"policy_noise", "noise_clip", "combine", "discount", "terminated", "tau"}
    assert wanted <= reached


def test_large_networks_and_images_are_summed_up(tmp_path: Path, open_page: Any) -> None:
    path = tmp_path / "camera"
    knobs: dict[str, Any] = {"hidden": (64, 64), "steps": 40}
    t3d.train("helpers.seeing_envs:Camera", run=path, quiet=True, **(TINY | knobs))
    assert main(["explain", str(path)]) == 0
    opened = open_page(path / "explain.html")
    assert "a corner" in opened.page.locator("#step-12").inner_text()
    assert opened.page.evaluate("t3d.difference()") < 1e-5
    assert opened.overflow() == 0


def test_a_target_that_moves_at_every_update_is_the_right_one(
    tmp_path: Path, open_page: Any
) -> None:
    path = tmp_path / "run"
    t3d.train("Pendulum-v1", run=path, quiet=True, **(TINY | {"policy_freq": 1, "tau": 0.5}))
    assert main(["explain", str(path)]) == 0
    assert open_page(path / "explain.html").page.evaluate("t3d.difference()") < 1e-5


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("explain nowhere", "no run folder at nowhere"),
        ("explain empty", "empty is not a run folder"),
        ("explain young", "young has no checkpoint yet; let it train to its first"),
        ("explain trained --out trained/config.json/page.html", "cannot be written"),
        (
            "explain random",
            "random has made no update yet: its first 1,000 steps are random; train",
        ),
        ("explain late", "late has policy_freq 5000; explain takes up to 1000"),
        ("explain lap", "lap has sampling lap; explain shows TD3's own, uniform"),
        ("explain td7", "td7 has the agent td7 with the body mlp; explain shows t3d with mlp"),
        ("explain copied", "copied has target_every 9; explain shows targets that follow by tau"),
        ("explain elu", "activation elu and layer_norm none; explain shows networks with relu"),
        ("explain --rows 3", "explain has no option '--rows'"),
    ],
)
def test_bad_input_is_one_line(
    run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: str,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "trained").symlink_to(run)
    young = RunFolder(tmp_path / "young")
    config = RunFolder(run).config()
    young.create(config, {})
    if "random" in words:
        trained(tmp_path / "random", steps=20, random_steps=1000)
    others: dict[str, dict[str, Any]] = {"late": {"policy_freq": 5000}}
    others |= {"lap": {"sampling": "lap"}, "elu": {"activation": "elu"}}
    others |= {"td7": {"agent": "td7"}, "copied": {"target_every": 9}}
    for name, knob in others.items():
        RunFolder(tmp_path / name).create(t3d.Config.from_dict(vars(config) | knob), {})
    assert_refused(words.split(), message, capsys)
