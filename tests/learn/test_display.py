import pytest

import t3d
from helpers.agents import small_agent
from helpers.images import image_agent


def test_a_notebook_shows_networks_knobs_updates_and_score() -> None:
    agent = small_agent(env="Hopper-v5")
    agent.updates = 12_345
    agent.score = {"mean": -150.26, "std": 20.0, "episodes": 10.0, "step": 5.0}
    page = agent._repr_html_()
    for row in (
        "<caption>T3D</caption>",
        "<th>environment</th><td>Hopper-v5</td>",
        "<th>observation, action</th><td>3, 2</td>",
        "<th>updates</th><td>12,345</td>",
        "<th>score</th><td>-150.3 ± 20.0, 10 episodes</td>",
        # 3 * 8 + 8 + 8 * 6 + 6 + 6 * 2 + 2
        "<th>actor</th><td>100 parameters: 8×3, 6×8, 2×6</td>",
        "<th>hidden</th><td>(8, 6)</td>",
        "<th>tau</th><td>0.1</td>",
    ):
        assert row in page, row
    assert "discount" not in page  # it is the default
    assert "<th>critic_target</th>" in page


def test_a_line_shows_networks_knobs_updates_and_score() -> None:
    agent = small_agent(critic_hidden=(5,))
    sizes = "observation 3, action 2, actor 8-6, critic 5, 0 updates, reference engine"
    before, knobs = f"{agent!r}".split(f"T3D({sizes}, ")  # it was made for no environment
    assert before == ""
    assert "tau=0.1" in knobs.removesuffix(")").split(", ")
    assert "hidden" not in knobs
    assert "discount" not in knobs  # it is the default
    agent = small_agent(env="Hopper-v5", env_kwargs={f"a{n}": n for n in range(100)})
    agent.score = {"mean": -1150.26, "std": 20.0, "episodes": 10.0, "step": 5.0}
    line = f"{agent!r}"
    assert line.startswith("T3D(Hopper-v5: observation 3, ")
    assert ", score -1,150.3 ± 20.0, 10 episodes, " in line
    assert line.endswith(" ...)")
    assert len(line) < 300
    plain = t3d.T3D(3, [-1], [1])
    assert f"{plain}" == (
        "T3D(observation 3, action 1, actor 256-256, critic 256-256, 0 updates, reference engine)"
    )
    assert "environment" not in plain._repr_html_()


def test_a_changed_knob_is_shown_and_an_unknown_score_is_not() -> None:
    agent = small_agent()
    agent.change(discount=0.5)
    assert "<th>discount</th><td>0.5</td>" in agent._repr_html_()
    assert "score" not in agent._repr_html_()
    assert "<table>" in image_agent()._repr_html_()


@pytest.mark.parametrize("text", ["<script>alert(1)</script>", '"><img src=x onerror=a()>', "a&b;"])
def test_a_name_from_a_file_is_text(text: str) -> None:
    kind = type(text, (t3d.T3D,), {})
    agent = kind(3, [-1], [1], t3d.Config(env=text, hidden=(2,)))
    page = agent._repr_html_()
    assert text not in page
    assert "\n" not in repr(agent)
    assert "<script" not in page
    assert "<img" not in page
