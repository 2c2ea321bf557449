"""Draw the fifteen pictures of docs/fifteen-steps.md: `python docs/draw_steps.py`.

Every picture is an SVG of its own, written by hand-made helpers and nothing else. Colours
follow the reader's light or dark mode. What looks like data is data: the pictures of steps
4 to 11 follow the same four transitions, and every curve is computed.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

WIDTH = 760
LEFT, RIGHT = 36, 724

# One colour per idea, in light and in dark mode. A target is the dashed twin of its model.
COLOURS = {
    "ink": ("#1f2933", "#e6edf3"),
    "soft": ("#57606a", "#a3afbb"),
    "state": ("#2457c5", "#7db0ff"),
    "action": ("#c2410c", "#ff9a5c"),
    "reward": ("#4d7c0f", "#a8d95f"),
    "actor": ("#7c3aed", "#c0a4ff"),
    "critic1": ("#0f766e", "#3fd6c4"),
    "critic2": ("#be185d", "#ff86b8"),
    "goal": ("#8a6100", "#efc04a"),  # the Bellman target
    "card": ("#ffffff", "#161b22"),
    "rim": ("#d5dbe1", "#3a424c"),
}

SANS = "-apple-system,BlinkMacSystemFont,'Segoe UI',Helvetica,Arial,sans-serif"
MONO = "ui-monospace,SFMono-Regular,Menlo,Consolas,'Liberation Mono',monospace"
LIGHT = "".join(f".{name}{{color:{light}}}" for name, (light, _) in COLOURS.items())
DARK = "".join(f".{name}{{color:{dark}}}" for name, (_, dark) in COLOURS.items())
STYLE = (
    f"text{{font-family:{SANS};font-size:14px;fill:currentColor}}"
    f".code{{font-family:{MONO};font-size:13px}}"
    ".small{font-size:13px}.big{font-size:17px}.head{font-size:19px}.bold{font-weight:600}"
    ".solid{fill:currentColor}"
    ".tint{fill:currentColor;fill-opacity:.13}"
    ".line{fill:none;stroke:currentColor;stroke-width:1.6;stroke-linejoin:round}"
    ".thin{stroke-width:1.1}.thick{stroke-width:2.6}"
    ".box{fill:currentColor;fill-opacity:.13;stroke:currentColor;stroke-width:1.6}"
    ".target{fill-opacity:.06;stroke-dasharray:6 4}.dashed{stroke-dasharray:5 4}"
    ".dotted{stroke-dasharray:1.5 4;stroke-linecap:round}"
    ".faint{opacity:.4}.pale{opacity:.65}"
    f"{LIGHT}@media (prefers-color-scheme:dark){{{DARK}}}"
)


class Row(NamedTuple):
    """One transition of the worked example, with what steps 5 to 10 make of it."""

    place: int  # in the drawing of the memory
    state: tuple[float, float]
    next_state: tuple[float, float]
    action: float
    reward: float
    done: int
    next_action: float  # what the actor target plays in step 5
    normal: float  # the standard normal number of step 6
    Qt1: float
    Qt2: float
    Q1: float
    Q2: float

    @property
    def noise(self) -> float:
        """Step 6, before the clip, in the environment's units."""
        return self.normal * POLICY_NOISE * MAX_ACTION

    @property
    def clipped(self) -> float:
        """Step 6, after the clip."""
        limit = NOISE_CLIP * MAX_ACTION
        return min(max(self.noise, -limit), limit)

    @property
    def smoothed(self) -> float:
        """Step 6, after the clamp to the action range."""
        return min(max(self.next_action + self.clipped, LOW), HIGH)

    @property
    def smaller(self) -> float:
        """Step 8."""
        return min(self.Qt1, self.Qt2)

    @property
    def Qt(self) -> float:
        """Step 9."""
        return self.reward + (1 - self.done) * DISCOUNT * self.smaller


LOW, HIGH = -1.0, 3.0  # lopsided on purpose
MAX_ACTION = (HIGH - LOW) / 2
POLICY_NOISE, NOISE_CLIP, DISCOUNT, TAU = 0.2, 0.5, 0.99, 0.005
ROWS = (
    Row(9, (0.4, -1.2), (0.5, -0.9), 1.8, 1.2, 0, 1.4, 0.62, 21.4, 19.8, 18.3, 22.6),
    Row(21, (2.1, 0.7), (2.3, 0.9), -0.7, -5.0, 1, 0.1, -0.35, 7.2, 8.9, -2.4, -4.1),
    Row(2, (-0.3, 1.6), (-0.1, 1.5), 2.6, 0.8, 0, 2.4, 1.9, 34.0, 36.5, 33.1, 36.0),
    Row(16, (1.0, 0.2), (1.1, 0.0), 0.3, -0.3, 0, 0.6, -2.9, 12.6, 12.1, 12.9, 10.2),
)

Point = tuple[float, float]


def plain(value: float) -> str:
    """A coordinate, rounded so that every machine writes the same."""
    rounded = round(value, 1) + 0.0  # no -0.0
    return f"{rounded:g}"


def number(value: float, digits: int = 1) -> str:
    """A number as printed, with a true minus sign."""
    return f"{value:.{digits}f}".replace("-", "\u2212")


def pair(values: Sequence[float]) -> str:
    """A state as printed."""
    return f"({', '.join(number(value) for value in values)})"


def scatter(index: int) -> float:
    """A number in 0..1 that looks random and never changes."""
    return math.sin(12.9898 * (index + 1)) * 4375.85 % 1


class Axis(NamedTuple):
    """A straight map from values to pixels."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Where a value is drawn."""
        share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)


class Picture:
    """The elements of one SVG, in the order of drawing."""

    def __init__(self, step: int, title: str, description: str, height: int) -> None:
        """Draw the card, and the head that all pictures share."""
        self.step, self.title, self.description, self.height = step, title, description, height
        self.elements: list[str] = []
        self.rect(1, 1, WIDTH - 2, height - 2, "card solid", radius=14)
        self.rect(1, 1, WIDTH - 2, height - 2, "rim line thin", radius=14)
        self.heading()

    @property
    def name(self) -> str:
        """What the file says that it shows."""
        return f"Step {self.step}: {self.title}"

    def heading(self) -> None:
        """The title, and where among the steps this one is."""
        step = self.step
        self.circle(LEFT + 17, 40, 17, "ink solid")
        self.text(LEFT + 17, 46, str(step), "card big bold", "middle")
        self.text(LEFT + 46, 46, self.title, "ink head bold")
        groups = ((1, 3, "built once"), (4, 9, "the target value"), (10, 12, "the critics learn"))
        for first, last, name in (*groups, (13, 15, "every second update")):
            for dot in range(first, last + 1):
                gap = 7 * sum(dot >= start for start in (4, 10, 13))
                x = RIGHT - 4 - 11 * 14 - 21 + 11 * (dot - 1) + gap
                if dot == step:
                    self.circle(x, 32, 5, "ink solid")
                else:
                    near = first <= step <= last
                    self.circle(x, 32, 3, "soft solid" if near else "rim solid")
            if first <= step <= last:
                self.text(RIGHT, 56, name, "soft small", "end")

    def svg(self) -> str:
        """The picture as a file."""
        size = f'viewBox="0 0 {WIDTH} {self.height}" width="{WIDTH}" height="{self.height}"'
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img"'
            ' aria-labelledby="title desc">',
            f'<title id="title">{escape(self.name)}</title>',
            f'<desc id="desc">{escape(self.description)}</desc>',
            f"<style>{STYLE}</style>",
            *self.elements,
            "</svg>",
        ]
        return "\n".join(lines) + "\n"

    # Shapes.

    def shape(self, name: str, kind: str, **attributes: float | str) -> None:
        """Any element; numbers are rounded."""
        words = [f'class="{kind}"']
        for key, value in attributes.items():
            shown = value if isinstance(value, str) else plain(value)
            words.append(f'{key.replace("_", "-")}="{shown}"')
        self.elements.append(f"<{name} {' '.join(words)}/>")

    def rect(
        self, x: float, y: float, width: float, height: float, kind: str, radius: float = 6
    ) -> None:
        """A box with round corners."""
        self.shape("rect", kind, x=x, y=y, width=width, height=height, rx=radius)

    def circle(self, x: float, y: float, radius: float, kind: str) -> None:
        """A circle around a point."""
        self.shape("circle", kind, cx=x, cy=y, r=radius)

    def path(self, commands: str, kind: str) -> None:
        """A path that is already in SVG's own words."""
        self.shape("path", kind, d=commands)

    def curve(self, points: Iterable[Point], kind: str, close: bool = False) -> None:
        """Straight lines through points, close enough together to look smooth."""
        commands = "L".join(f"{plain(x)} {plain(y)}" for x, y in points)
        self.path(f"M{commands}{'Z' if close else ''}", kind)

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str) -> None:
        """A straight line."""
        self.curve([(x1, y1), (x2, y2)], kind)

    def text(self, x: float, y: float, words: str, kind: str, anchor: str = "start") -> None:
        """One line of text, its baseline at y."""
        place = f'x="{plain(x)}" y="{plain(y)}"'
        if anchor != "start":
            place += f' text-anchor="{anchor}"'
        self.elements.append(f'<text class="{kind}" {place}>{escape(words, quote=False)}</text>')

    def lines(self, x: float, y: float, texts: Iterable[str], kind: str, pitch: float = 20) -> None:
        """Several lines of text."""
        for index, words in enumerate(texts):
            self.text(x, y + pitch * index, words, kind)

    def head(self, tip: Point, angle: float, colour: str, size: float = 9) -> None:
        """The head of an arrow."""
        corners = [tip]
        for turn in (2.68, -2.68):
            x = tip[0] + size * math.cos(angle + turn)
            y = tip[1] + size * math.sin(angle + turn)
            corners.append((x, y))
        self.curve(corners, f"{colour} solid", close=True)

    def arrow(
        self, x1: float, y1: float, x2: float, y2: float, colour: str, kind: str = "line"
    ) -> None:
        """A straight arrow."""
        angle = math.atan2(y2 - y1, x2 - x1)
        self.line(x1, y1, x2 - 6 * math.cos(angle), y2 - 6 * math.sin(angle), f"{colour} {kind}")
        self.head((x2, y2), angle, colour)

    def bend(self, points: Sequence[Point], colour: str, kind: str = "line") -> None:
        """An arrow along a Bezier curve: start, two handles, end."""
        (x1, y1), (x2, y2), (x3, y3), (x4, y4) = points
        angle = math.atan2(y4 - y3, x4 - x3)
        x5, y5 = x4 - 6 * math.cos(angle), y4 - 6 * math.sin(angle)
        start = f"M{plain(x1)} {plain(y1)}"
        handles = f"C{plain(x2)} {plain(y2)} {plain(x3)} {plain(y3)} {plain(x5)} {plain(y5)}"
        self.path(start + handles, f"{colour} {kind}")
        self.head((x4, y4), angle, colour)

    def flow(self, x1: float, y1: float, x2: float, y2: float, colour: str) -> None:
        """An arrow that leaves and arrives level, whatever the heights."""
        if y1 == y2:
            self.arrow(x1, y1, x2, y2, colour)
        else:
            middle = (x1 + x2) / 2
            self.bend([(x1, y1), (middle, y1), (middle, y2), (x2, y2)], colour)

    # Things that several pictures show.

    def chip(
        self, x: float, y: float, width: float, words: str, colour: str, target: bool = False
    ) -> None:
        """A value in a small box, centred at height y."""
        dashes = " target" if target else ""
        self.rect(x, y - 15, width, 30, f"{colour} box{dashes}", radius=7)
        self.text(x + width / 2, y + 5, words, f"{colour} bold", "middle")

    def network(
        self,
        box: tuple[float, float, float, float],
        layers: Sequence[int],
        colour: str,
        label: str,
        *,
        weights: int,
        target: bool = False,
    ) -> None:
        """A network in its frame; `weights` picks the look of its connections."""
        x, y, width, height = box
        self.rect(x, y, width, height, f"{colour} box{' target' if target else ''}", radius=12)
        self.text(x + width / 2, y + 22, label, f"{colour} bold", "middle")
        inner = height - 44
        pitch = min(26.0, inner / max(layers))
        nodes = []
        for index, count in enumerate(layers):
            across = x + 26 + (width - 52) * index / (len(layers) - 1)
            middle = y + 30 + inner / 2
            nodes.append([(across, middle + pitch * (i - (count - 1) / 2)) for i in range(count)])
        seen = 0
        for left, right in itertools.pairwise(nodes):
            for x1, y1 in left:
                for x2, y2 in right:
                    seen += 1
                    strength = scatter(seen * 3 + weights * 7)
                    d = f"M{plain(x1)} {plain(y1)}L{plain(x2)} {plain(y2)}"
                    self.shape("path", f"{colour} line thin", d=d, opacity=0.08 + 0.5 * strength**2)
        faded = " faint" if target else ""
        for layer in nodes:
            for across, down in layer:
                self.circle(across, down, min(5, pitch * 0.36), f"{colour} solid{faded}")

    def ticks(self, axis: Axis, y: float, values: Iterable[float], digits: int = 0) -> None:
        """A horizontal axis with its numbers."""
        self.line(axis.start, y, axis.end, y, "soft line thin")
        for value in values:
            self.line(axis(value), y - 4, axis(value), y + 4, "soft line thin")
            self.text(axis(value), y + 20, number(value, digits), "soft small", "middle")

    def foot(self, *lines: str) -> None:
        """What to take away, at the bottom."""
        top = self.height - 22 - 20 * (len(lines) - 1)
        self.line(LEFT, top - 24, RIGHT, top - 24, "rim line thin")
        self.lines(LEFT, top, lines, "ink")


def step_01() -> Picture:
    """The memory as a ring."""
    picture = Picture(
        1,
        "The replay memory",
        "A ring of stored transitions. A new one overwrites the oldest; rows drawn at random"
        " from all over the ring form a batch.",
        440,
    )
    count, middle, inner, outer = 32, (336.0, 232.0), 74.0, 116.0
    drawn = (3, 8, 12, 15, 20, 26)

    def at(turn: float, radius: float) -> Point:
        angle = math.pi + 2 * math.pi * turn / count
        return middle[0] + radius * math.cos(angle), middle[1] + radius * math.sin(angle)

    picture.text(LEFT, 130, "one step of play", "ink bold")
    picture.rect(LEFT, 140, 82, 184, "soft line thin", radius=10)
    for index, (name, colour) in enumerate(FIELDS):
        picture.chip(LEFT + 10, 162 + 35 * index, 62, name, colour)
    picture.arrow(LEFT + 88, 232, middle[0] - outer - 6, 232, "ink", "line thick")
    picture.text(LEFT + 100, 222, "add", "ink code")
    picture.text(LEFT + 94, 254, "overwrites", "soft small")
    picture.text(LEFT + 94, 271, "the oldest", "soft small")

    for slot, cell in enumerate(drawn):
        start, out = at(cell + 0.5, outer), at(cell + 0.5, outer + 46)
        end = (566.0, 132.0 + 40 * slot)
        before = (end[0] - 90, end[1])
        if slot == 0:  # over the top of the ring
            out, before = (start[0] - 12, 66), (end[0] - 160, 92)
        picture.bend([start, out, before, end], "ink", "line thin")
    for cell in range(count):
        corners = [at(cell + 0.06, outer), at(cell + 0.94, outer)]
        corners += [at(cell + 0.94, inner), at(cell + 0.06, inner)]
        words = [f"{plain(x)} {plain(y)}" for x, y in corners]
        d = f"M{words[0]}A{outer:g} {outer:g} 0 0 1 {words[1]}L{words[2]}"
        d += f"A{inner:g} {inner:g} 0 0 0 {words[3]}Z"
        if cell in drawn:
            picture.path(d, "ink solid")
        elif cell == 0:
            picture.path(d, "ink line dashed")
        else:
            share = 0.1 + 0.45 * cell / (count - 1)
            picture.shape("path", "soft solid", d=d, fill_opacity=f"{share:.2f}")
    arc = [at(0.5 + turn / 4, inner - 13) for turn in range(29)]
    picture.curve(arc, "soft line")
    (x1, y1), (x2, y2) = arc[-2:]
    picture.head((x2 + 4, y2 - 1), math.atan2(y2 - y1, x2 - x1), "soft")
    picture.text(middle[0], 228, "1,000,000 rows", "ink bold", "middle")
    picture.text(middle[0], 250, "faded = old", "soft small", "middle")

    picture.text(572, 100, "sample(...)", "ink code")
    for slot in range(6):
        y = 132 + 40 * slot
        for index, (_, colour) in enumerate(FIELDS):
            picture.rect(572 + 31 * index, y - 11, 25, 22, f"{colour} box", radius=5)
    for index, (name, colour) in enumerate(FIELDS):
        picture.text(584.5 + 31 * index, 368, name, f"{colour} small bold", "middle")
    picture.foot("Neighbours in time look alike; rows drawn from a long memory do not.")
    return picture


FIELDS = (
    ("s", "state"),
    ("s\u2032", "state"),
    ("a", "action"),
    ("r", "reward"),
    ("done", "soft"),
)


def step_02() -> Picture:
    """The actor, its range, and its target."""
    picture = Picture(
        2,
        "The actor and its target",
        "A state goes through two hidden layers; tanh squashes the result, which is then"
        " stretched to a lopsided action range from -1 to 3. The actor target is a copy.",
        534,
    )
    picture.text(LEFT + 25, 134, "state s", "state bold", "middle")
    for index in range(4):
        picture.rect(LEFT + 10, 147 + 32 * index, 30, 26, "state box", radius=5)
    picture.arrow(86, 211, 122, 211, "state")
    picture.network((126, 92, 226, 222), (4, 6, 6, 1), "actor", "actor", weights=1)
    picture.text(239, 302, "256 and 256 hidden units", "actor small", "middle")
    picture.arrow(356, 211, 404, 211, "actor")
    picture.text(378, 201, "u", "actor bold", "middle")

    across, down = Axis(-3, 3, 440, 636), Axis(-1, 1, 276, 146)
    for value, name in ((-1.0, "low = \u22121"), (0.0, "middle = 1"), (1.0, "high = 3")):
        dash = "rim line" if value == 0 else "action line thin dashed"
        picture.line(across.start, down(value), across.end, down(value), dash)
        picture.text(across.start - 8, down(value) + 5, number(value, 0), "soft small", "end")
        picture.text(across.end + 8, down(value) + 5, name, "action small bold")
    grid = [-3 + 0.1 * index for index in range(61)]
    picture.curve([(across(u), down(math.tanh(u))) for u in grid], "actor line thick")
    u = 0.8
    picture.line(across(u), down(-1), across(u), down(math.tanh(u)), "actor line thin dashed")
    picture.line(across(u), down(math.tanh(u)), 636, down(math.tanh(u)), "action line thin dashed")
    picture.circle(across(u), down(math.tanh(u)), 6, "action solid")
    shown = number(1 + 2 * math.tanh(u), 2)
    picture.text(644, down(math.tanh(u)) + 6, f"a = {shown}", "action bold")
    picture.text(538, 110, "1 + 2 \u00d7 tanh(u)", "ink bold", "middle")
    picture.text(538, 128, "middle + max_action \u00d7 tanh(u)", "soft small", "middle")
    picture.text(across(u), 298, "u = 0.8", "actor small", "middle")

    picture.arrow(239, 316, 239, 348, "actor", "line dashed")
    picture.text(250, 337, "copied once", "soft small")
    picture.network(
        (126, 352, 226, 116), (4, 6, 6, 1), "actor", "actor target", weights=1, target=True
    )
    picture.lines(
        380,
        406,
        (
            "Same class, same shape, and the same weights at the",
            "start. It is never trained: it follows (step 14).",
        ),
        "soft",
    )
    picture.foot("No action can leave the range, and each dimension has its own low and high.")
    return picture


def step_03() -> Picture:
    """The twins, their different weights, and their targets."""
    picture = Picture(
        3,
        "The twin critics and their targets",
        "State and action go into two networks with different starting weights, which give Q1"
        " and Q2. Each has a target that starts with exactly its weights.",
        496,
    )
    picture.chip(LEFT, 190, 72, "s", "state")
    picture.chip(LEFT, 300, 72, "a", "action")
    picture.text(LEFT + 36, 334, "scaled to", "soft small", "middle")
    picture.text(LEFT + 36, 351, "\u22121..1", "soft small", "middle")
    for index, colour in enumerate(("critic1", "critic2")):
        top = 88 + 166 * index
        picture.flow(LEFT + 74, 190, 158, top + 72, "state")
        picture.flow(LEFT + 74, 300, 158, top + 90, "action")
        name = f"twin {index + 1}"
        picture.network((162, top, 214, 112), (3, 5, 5, 1), colour, name, weights=2 + 9 * index)
        picture.network(
            (526, top, 198, 112),
            (3, 5, 5, 1),
            colour,
            f"target of twin {index + 1}",
            weights=2 + 9 * index,
            target=True,
        )
        picture.arrow(380, top + 66, 410, top + 66, colour)
        picture.chip(414, top + 66, 56, f"Q{index + 1}", colour)
        for start, target in ((168, False), (536, True)):
            width = 178 if target else 202
            picture.line(start, top + 134, start + width, top + 134, "rim line thin")
            for bar in range(14):
                tall = 30 * scatter(5 + 3 * bar + 31 * index) - 15
                x = start + 4 + (width - 14) * bar / 13
                y = top + 134 - max(tall, 0)
                kind = f"{colour} solid faint" if target else f"{colour} solid"
                picture.shape("rect", kind, x=x, y=y, width=7.0, height=abs(tall), rx=1)
        picture.arrow(382, top + 134, 524, top + 134, colour, "line dashed")
        picture.text(453, top + 126, "copied once", "soft small", "middle")
    picture.text(269, 428, "start weights: different", "ink small", "middle")
    picture.text(625, 428, "same as the model\u2019s", "ink small", "middle")
    picture.foot("Twins that start apart make different mistakes, and step 8 lives on that.")
    return picture


def step_04() -> Picture:
    """Rows from everywhere become a table."""
    picture = Picture(
        4,
        "Sample a batch",
        "Four rows from different places in the memory are gathered into a table with the"
        " columns state, next state, action, reward and done.",
        420,
    )
    columns = ((286, 112), (404, 112), (522, 56), (584, 60), (650, 62))
    picture.text(LEFT, 102, "the memory", "ink bold")
    picture.rect(254, 84, 470, 272, "soft line thin", radius=12)
    for (name, colour), (x, width) in zip(FIELDS, columns):
        picture.text(x + width / 2, 116, name, f"{colour} big bold", "middle")
    for index, row in enumerate(ROWS):
        y = 148 + 50 * index
        place = 118 + 9.6 * row.place + 3.4
        picture.bend([(148, place), (200, place), (200, y), (250, y)], "ink")
        picture.text(268, y + 5, str(index + 1), "soft", "middle")
        values = (
            pair(row.state),
            pair(row.next_state),
            number(row.action),
            number(row.reward),
            str(row.done),
        )
        for words, (_, colour), (x, width) in zip(values, FIELDS, columns):
            picture.chip(x, y, width, words, colour)
    for place in range(25):
        drawn = any(row.place == place for row in ROWS)
        colour = "ink solid" if drawn else "soft tint"
        picture.rect(LEFT, 118 + 9.6 * place, 110, 6.8, colour, radius=2)
    picture.text(489, 340, "batch.to(device, dtype)", "soft code", "middle")
    picture.foot("The next pictures follow these four rows. A real batch has 256.")
    return picture


def action_axis(picture: Picture, axis: Axis, y: float) -> None:
    """The action range as a thick line with its two ends."""
    picture.line(axis(LOW), y, axis(HIGH), y, "rim line thick")
    for bound in (LOW, HIGH):
        picture.line(axis(bound), y - 8, axis(bound), y + 8, "soft line")


def step_05() -> Picture:
    """Next states through the actor target."""
    picture = Picture(
        5,
        "The actor target plays",
        "The four next states of the batch go through the actor target; each comes out as an"
        " action on the range from -1 to 3.",
        400,
    )
    axis = Axis(LOW, HIGH, 468, 656)
    picture.text(LEFT + 74, 102, "next state s\u2032", "state bold", "middle")
    picture.text(562, 102, "next action a\u2032", "action bold", "middle")
    picture.network(
        (214, 100, 190, 230), (2, 6, 6, 1), "actor", "actor target", weights=1, target=True
    )
    for index, row in enumerate(ROWS):
        y = 138 + 56 * index
        picture.text(LEFT, y + 5, str(index + 1), "soft")
        picture.chip(LEFT + 18, y, 112, pair(row.next_state), "state")
        picture.arrow(LEFT + 134, y, 210, y, "state")
        picture.arrow(408, y, 448, y, "action")
        action_axis(picture, axis, y)
        picture.circle(axis(row.next_action), y, 7, "action solid")
        picture.text(676, y + 5, number(row.next_action, 2), "action bold")
    picture.text(axis(LOW), 334, "\u22121", "soft small", "middle")
    picture.text(axis(HIGH), 334, "3", "soft small", "middle")
    picture.foot("Asking the slow copy keeps the goal of learning still while the actor changes.")
    return picture


def step_06() -> Picture:
    """The bell, the clip and the clamp, on one axis."""
    picture = Picture(
        6,
        "Smooth the next action",
        "A Gaussian bell of standard deviation 0.4 around the next action of row 3, cut at plus"
        " and minus 1.0, over the action range -1 to 3. Below, what happens to each row: one"
        " noise is clipped, one action is clamped.",
        540,
    )
    axis = Axis(-1.5, 4.0, 96, 540)
    base, top = 262.0, 118.0
    third = ROWS[2]
    sigma, limit = POLICY_NOISE * MAX_ACTION, NOISE_CLIP * MAX_ACTION

    def bell(a: float) -> Point:
        height = math.exp(-(((a - third.next_action) / sigma) ** 2) / 2)
        return axis(a), base - (base - top) * height

    for start, end in ((axis.start, axis(LOW)), (axis(HIGH), axis.end)):
        picture.rect(start, 98, end - start, base - 98, "soft tint", radius=0)
        picture.rect(start, 296, end - start, 166, "soft tint", radius=0)
    for value, name in ((LOW, "low"), (HIGH, "high")):
        picture.line(axis(value), 98, axis(value), base, "soft line")
        picture.line(axis(value), 296, axis(value), 462, "soft line")
        picture.text(axis(value), 90, name, "soft code", "middle")
    grid = [third.next_action + sigma * (index / 10) for index in range(-38, 39)]
    inside = [a for a in grid if abs(a - third.next_action) <= limit + 1e-9]
    area = [(axis(inside[0]), base), *(bell(a) for a in inside), (axis(inside[-1]), base)]
    picture.curve(area, "action tint", close=True)
    picture.curve([bell(a) for a in grid], "action line")
    for side, anchor in ((-1, "middle"), (1, "start")):
        x = axis(third.next_action + side * limit)
        picture.line(x, 142, x, base, "ink line dashed")
        sign = "\u2212" if side < 0 else "+"
        picture.text(x - 14 * (side > 0), 134, f"{sign}noise_clip", "ink code", anchor)
    x = axis(third.next_action)
    picture.line(x, top, x, base, "action line thin dashed")
    picture.text(x, 110, "a\u2032 of row 3", "action bold", "middle")
    y = bell(third.next_action - sigma)[1]
    picture.line(axis(third.next_action - sigma), y, x, y, "action line")
    picture.text(axis(1.3), y - 9, "standard deviation 0.4", "action small", "end")
    picture.text(axis(1.3), y + 9, "= policy_noise", "action code", "end")
    picture.text(axis(1.3), y + 26, "* max_action", "action code", "end")
    picture.ticks(axis, base, (-1, 0, 1, 2, 3))

    picture.circle(568, 226, 6, "action line")
    picture.text(582, 231, "a\u2032 of step 5", "soft small")
    picture.circle(568, 250, 7, "action solid")
    picture.text(582, 255, "smoothed a\u2032", "soft small")
    for index, row in enumerate(ROWS):
        y = 320 + 40 * index
        picture.text(LEFT, y + 5, f"row {index + 1}", "soft")
        picture.line(axis.start, y, axis.end, y, "rim line thin")
        drawn, clip = row.next_action + row.noise, row.next_action + row.clipped
        if clip != row.smoothed:
            picture.circle(axis(drawn), y, 6, "action line thin dotted")
            picture.text(axis(drawn) + 11, y - 8, "clamped", "ink small bold")
        elif clip != drawn:
            picture.circle(axis(drawn), y, 6, "action line thin dotted")
            picture.text(axis(row.smoothed) + 12, y - 8, "clipped", "ink small bold")
        picture.circle(axis(row.next_action), y, 6, "action line")
        picture.circle(axis(row.smoothed), y, 7, "action solid")
        gap = 9 if row.smoothed > row.next_action else -9
        if abs(axis(row.smoothed) - axis(row.next_action)) > 30:
            x1, x2 = axis(row.next_action) + gap * 0.7, axis(row.smoothed) - gap
            picture.arrow(x1, y, x2, y, "action", "line")
        sign = "+" if row.noise > 0 else "\u2212"
        words = f"{number(row.next_action, 2)} {sign} {abs(row.clipped):.2f}"
        picture.text(562, y + 5, words, "ink")
        picture.text(RIGHT, y + 5, f"\u2192 {number(row.smoothed, 2)}", "action bold", "end")
    picture.foot("Near actions should have near values: judge a small cloud, not one point.")
    return picture


def step_07() -> Picture:
    """The same question to both critic targets."""
    picture = Picture(
        7,
        "Both critic targets judge it",
        "Next state and smoothed next action of row 1 go into both critic targets. Their value"
        " curves over the action differ, and so do their answers: 21.4 and 19.8.",
        420,
    )
    row = ROWS[0]
    picture.chip(LEFT, 166, 92, "s\u2032", "state")
    picture.chip(LEFT, 266, 92, f"a\u2032 = {number(row.smoothed, 2)}", "action")
    answers = (row.Qt1, row.Qt2)
    for index, (colour, value) in enumerate(zip(("critic1", "critic2"), answers)):
        top = 92 + 134 * index
        picture.flow(LEFT + 94, 166, 176, top + 48, "state")
        picture.flow(LEFT + 94, 266, 176, top + 68, "action")
        box = (180.0, float(top), 168.0, 116.0)
        name = f"critic target {index + 1}"
        picture.network(box, (3, 5, 5, 1), colour, name, weights=2 + 9 * index, target=True)
        picture.arrow(352, top + 58, 376, top + 58, colour, "line")
        picture.text(384, top + 52, f"Qt{index + 1}", f"{colour} bold")
        picture.text(384, top + 72, number(value), f"{colour} big bold")

    across, down = Axis(LOW, HIGH, 470, 712), Axis(9.5, 24, 310, 112)

    def first(a: float) -> float:
        return 5.5 * math.sin(1.05 * a - 0.3) + 1.4 * math.sin(2.3 * a + 1)

    def second(a: float) -> float:
        return 4.2 * math.sin(1.25 * a + 0.2) + 1.6 * math.sin(2.0 * a - 1)

    x = across(row.smoothed)
    picture.line(x, 104, x, 310, "action line thin dashed")
    curves = (("critic1", first, answers[0]), ("critic2", second, answers[1]))
    grid = [LOW + (HIGH - LOW) * index / 80 for index in range(81)]
    for colour, shape, value in curves:
        lift = value - shape(row.smoothed)
        points = [(across(a), down(shape(a) + lift)) for a in grid]
        picture.curve(points, f"{colour} line dashed")
        picture.circle(x, down(value), 6, f"{colour} solid")
    picture.text(x - 12, down(answers[0]) - 8, "21.4", "critic1 bold", "end")
    picture.text(x - 12, down(answers[1]) + 24, "19.8", "critic2 bold", "end")
    picture.text(470, 98, "value", "soft small")
    picture.ticks(across, 310, (-1, 0, 1, 2, 3))
    picture.text(591, 350, "next action", "soft small", "middle")
    picture.foot("Two opinions on the same question. Where they differ, at least one is wrong.")
    return picture


def step_08() -> Picture:
    """Pairs of bars, the smaller one lit."""
    picture = Picture(
        8,
        "Believe the smaller value",
        "Pairs of bars Qt1 and Qt2 for the four rows; in each pair the smaller one is filled.",
        420,
    )
    down = Axis(0, 40, 320, 100)
    picture.line(LEFT, 320, 480, 320, "soft line thin")
    for index, row in enumerate(ROWS):
        x = 56 + 108 * index
        for twin, value in enumerate((row.Qt1, row.Qt2)):
            colour = f"critic{twin + 1}"
            lit = value == row.smaller
            left = x + 42 * twin
            kind = f"{colour} solid" if lit else f"{colour} box target"
            picture.rect(left, down(value), 36, 320 - down(value), kind, radius=4)
            shade = f"{colour} bold" if lit else "soft"
            picture.text(left + 18, down(value) - 8, number(value), shade, "middle")
        picture.text(x + 39, 342, f"row {index + 1}", "soft", "middle")
    picture.text(506, 98, "Qt1", "critic1 bold")
    picture.text(540, 98, "Qt2", "critic2 bold")
    picture.rect(506, 108, 14, 14, "critic1 solid", radius=3)
    picture.rect(524, 108, 14, 14, "critic2 solid", radius=3)
    picture.text(546, 120, "the smaller: used", "ink")
    picture.rect(506, 134, 14, 14, "critic1 box target", radius=3)
    picture.rect(524, 134, 14, 14, "critic2 box target", radius=3)
    picture.text(546, 146, "the larger: dropped", "ink")
    picture.text(506, 194, "Too high is dangerous:", "ink bold")
    picture.lines(
        506,
        216,
        ("the actor goes there, and", "the error spreads to the", "states before."),
        "soft",
    )
    picture.text(506, 296, "Too low does less harm:", "ink bold")
    picture.text(506, 318, "the actor stays away.", "soft")
    picture.foot("Row by row, either twin may be the careful one.")
    return picture


def step_09() -> Picture:
    """The sum for a running, a terminated and a truncated row."""
    picture = Picture(
        9,
        "The Bellman target",
        "The target is r + (1 - done) x 0.99 x the smaller value. Row 1 runs on and gives 20.80;"
        " row 2 terminated and counts its reward only, -5.00; row 3 was cut by a time limit and"
        " still counts its next value, giving 34.46.",
        500,
    )
    for x, words in (
        (304, "r"),
        (404, "1 \u2212 done"),
        (496, "discount"),
        (592, "min"),
        (690, "Qt"),
    ):
        picture.text(x, 98, words, "soft small", "middle")
    rows_in_words = (
        ("row 1: the episode goes on", "done = 0"),
        ("row 2: terminated", "done = 1"),
        ("row 3: cut by the time limit", "done = 0"),
    )
    for index, (row, (words, flag)) in enumerate(zip(ROWS, rows_in_words)):
        y = 156 + 108 * index
        if index:
            picture.line(LEFT, y - 50, RIGHT, y - 50, "rim line thin")
        picture.text(LEFT, y - 22, words, "ink bold")
        picture.circle(LEFT + 14, y + 8, 13, "state box")
        picture.text(LEFT + 14, y + 13, "s", "state bold", "middle")
        picture.arrow(LEFT + 30, y + 8, LEFT + 62, y + 8, "ink")
        picture.circle(LEFT + 78, y + 8, 13, "state box")
        picture.text(LEFT + 78, y + 13, "s\u2032", "state bold", "middle")
        if row.done:
            picture.rect(LEFT + 98, y - 8, 7, 32, "ink solid", radius=1)
        else:
            if index == 2:
                picture.line(LEFT + 101, y - 10, LEFT + 101, y + 26, "ink line dashed")
            cut = index == 2
            for more in range(2):
                start = LEFT + (110 + 44 * more if cut else 94 + 46 * more)
                colour, dots = ("soft", " dotted") if cut else ("ink", "")
                picture.arrow(start, y + 8, start + 20, y + 8, colour, f"line{dots}")
                kind = "state line thin dotted" if cut else "state box"
                picture.circle(start + 31, y + 8, 9, kind)
        picture.text(LEFT, y + 42, flag, "soft code")
        picture.chip(272, y + 6, 64, number(row.reward, 2), "reward")
        picture.text(354, y + 12, "+", "ink big", "middle")
        picture.text(404, y + 12, str(1 - row.done), "ink big bold", "middle")
        dim = " faint" if row.done else ""
        picture.text(446, y + 12, "\u00d7", f"ink big{dim}", "middle")
        picture.text(496, y + 12, f"{DISCOUNT}", f"ink big{dim}", "middle")
        picture.text(540, y + 12, "\u00d7", f"ink big{dim}", "middle")
        colour = "critic1" if row.smaller == row.Qt1 else "critic2"
        picture.chip(560, y + 6, 64, number(row.smaller), f"{colour}{dim}", target=True)
        if row.done:
            picture.line(432, y + 6, 630, y + 6, "ink line thick")
        picture.text(642, y + 12, "=", "ink big", "middle")
        picture.chip(658, y + 6, 66, number(row.Qt, 2), "goal")
    picture.foot(
        "Only a true end has no future. A time limit stops the clock, not the world,",
        "so its last row still counts the value of s\u2032. No gradient flows through Qt.",
    )
    return picture


def step_10() -> Picture:
    """What both critics say about what was played."""
    picture = Picture(
        10,
        "Both critics predict",
        "State and played action of every row go into both critics; their predictions Q1 and Q2"
        " for the four rows are dots on a common value axis.",
        430,
    )
    picture.chip(LEFT, 166, 72, "s", "state")
    picture.chip(LEFT, 266, 72, "a", "action")
    picture.lines(LEFT, 302, ("as played,", "from memory"), "soft small", 17)
    for index, colour in enumerate(("critic1", "critic2")):
        top = 92 + 134 * index
        picture.flow(LEFT + 74, 166, 154, top + 48, "state")
        picture.flow(LEFT + 74, 266, 154, top + 68, "action")
        box = (158.0, float(top), 168.0, 116.0)
        name = f"critic {index + 1}"
        picture.network(box, (3, 5, 5, 1), colour, name, weights=2 + 9 * index)
        picture.arrow(330, top + 58, 358, top + 58, colour)
        picture.text(366, top + 63, f"Q{index + 1}", f"{colour} bold")
    axis = Axis(-8, 40, 462, 712)
    picture.ticks(axis, 336, (0, 10, 20, 30, 40))
    for value in (0, 10, 20, 30, 40):
        picture.line(axis(value), 96, axis(value), 332, "rim line thin")
    for index, row in enumerate(ROWS):
        y = 124 + 58 * index
        picture.text(448, y + 5, f"row {index + 1}", "soft small", "end")
        picture.line(axis.start, y, axis.end, y, "rim line")
        picture.circle(axis(row.Q1), y, 6, "critic1 solid")
        picture.circle(axis(row.Q2), y, 6, "critic2 solid")
        picture.text(axis(row.Q1), y - 12, number(row.Q1), "critic1 small bold", "middle")
        picture.text(axis(row.Q2), y + 23, number(row.Q2), "critic2 small bold", "middle")
    picture.foot("The models answer, not the targets; and about the action that was really played.")
    return picture


def step_11() -> Picture:
    """Errors as sides, losses as areas."""
    errors = [(row.Q1 - row.Qt, row.Q2 - row.Qt) for row in ROWS]
    first, second = (sum(e[twin] ** 2 for e in errors) / len(errors) for twin in (0, 1))
    picture = Picture(
        11,
        "Measure the error",
        "For each row two squares stand on or hang from the line of the target; the side of a"
        f" square is the error of a critic. The mean area of the first critic's is {first:.2f},"
        f" of the second's {second:.2f}, and the loss is their sum, {first + second:.2f}.",
        480,
    )
    scale, level = 38.0, 226.0
    widths = [max(scale * (abs(a) + abs(b)) + 8, 112) for a, b in errors]
    gap = (RIGHT - LEFT - 66 - sum(widths)) / 3
    x = LEFT + 66.0
    picture.line(LEFT, level, RIGHT, level, "goal line thick")
    picture.text(LEFT, level - 8, "Qt", "goal big bold")
    picture.text(LEFT, level - 112, "too high", "soft small")
    picture.text(LEFT, level + 108, "too low", "soft small")
    for index, (row, both, width) in enumerate(zip(ROWS, errors, widths)):
        left = x + (width - scale * (abs(both[0]) + abs(both[1])) - 8) / 2
        for twin, error in enumerate(both):
            colour, side = f"critic{twin + 1}", scale * abs(error)
            top = level - side if error > 0 else level
            picture.rect(left, top, side, side, f"{colour} box", radius=2)
            area = number(error**2, 2)
            size = "bold" if side > 40 else "small"
            picture.text(left + side / 2, top + side / 2 + 5, area, f"{colour} {size}", "middle")
            left += side + 8
        picture.text(
            x + width / 2,
            352,
            f"row {index + 1}: Qt = {number(row.Qt, 2)}",
            "soft small",
            "middle",
        )
        x += width + gap
    picture.text(LEFT, 401, "mean area", "soft")
    picture.chip(124, 396, 74, number(first, 2), "critic1")
    picture.text(214, 402, "+", "ink big", "middle")
    picture.chip(230, 396, 74, number(second, 2), "critic2")
    picture.text(320, 402, "=", "ink big", "middle")
    picture.chip(336, 396, 74, number(first + second, 2), "ink")
    picture.text(424, 401, "critic_loss", "ink code")
    picture.foot("One target for both twins. A double error costs four times as much.")
    return picture


def adam_path(start: Point, pull: Callable[[Point], Point], steps: int, rate: float) -> list[Point]:
    """Where Adam goes from a point, with its usual betas."""
    x, y = start
    path = [start]
    first, second = [0.0, 0.0], [0.0, 0.0]
    for count in range(1, steps + 1):
        moved = []
        for i, (place, slope) in enumerate(zip((x, y), pull((x, y)))):
            first[i] = 0.9 * first[i] + 0.1 * slope
            second[i] = 0.999 * second[i] + 0.001 * slope**2
            mean, spread = first[i] / (1 - 0.9**count), second[i] / (1 - 0.999**count)
            moved.append(place - rate * mean / (math.sqrt(spread) + 1e-8))
        x, y = moved
        path.append((x, y))
    return path


def step_12() -> Picture:
    """Both twins step downhill; the targets do not move."""
    picture = Picture(
        12,
        "Both critics take a step downhill",
        "Contour lines of the loss over two weights of each twin, with the path of Adam towards"
        " the valley; this update's step is drawn bold. The critic targets are not touched.",
        480,
    )
    scenes = (
        ("critic1", "critic 1", 0.55, (-1.7, 1.7), (0.7, -0.45)),
        ("critic2", "critic 2", -0.4, (1.55, 1.65), (-0.6, -0.4)),
    )
    long, short = 1.25, 0.8
    for index, (colour, name, turn, start, valley) in enumerate(scenes):
        left = LEFT + 236.0 * index
        across, down = Axis(-2.4, 2.4, left, left + 212), Axis(-2.2, 2.2, 314, 118)
        picture.text(left + 106, 106, name, f"{colour} bold", "middle")
        picture.rect(left, 118, 212, 196, f"{colour} line thin", radius=10)
        c, s = math.cos(turn), math.sin(turn)
        for level in (0.3, 0.7, 1.1, 1.5, 1.9, 2.3, 2.7):
            ring: list[Point] = []
            for degree in range(0, 361, 3):
                u = level * long * math.cos(math.radians(degree))
                v = level * short * math.sin(math.radians(degree))
                x, y = valley[0] + u * c - v * s, valley[1] + u * s + v * c
                if abs(x) < 2.33 and abs(y) < 2.1:
                    ring.append((across(x), down(y)))
                elif ring:
                    picture.curve(ring, f"{colour} line thin faint")
                    ring = []
            if ring:
                picture.curve(ring, f"{colour} line thin faint")

        def slope(point: Point, c: float = c, s: float = s, valley: Point = valley) -> Point:
            dx, dy = point[0] - valley[0], point[1] - valley[1]
            u, v = (dx * c + dy * s) / long**2, (-dx * s + dy * c) / short**2
            return u * c - v * s, u * s + v * c

        path = [(across(x), down(y)) for x, y in adam_path(start, slope, 5, 0.58)]
        picture.curve(path[1:], f"{colour} line thin dotted")
        for x, y in path[2:]:
            picture.circle(x, y, 3, f"{colour} solid faint")
        picture.arrow(*path[0], *path[1], colour, "line thick")
        picture.circle(*path[0], 6, f"{colour} solid")
    picture.rect(LEFT + 130, 366, 188, 32, "ink box", radius=7)
    picture.text(LEFT + 224, 387, "critic_loss = 6.24", "ink code", "middle")
    for side in (-1, 1):
        x = LEFT + 224.0 + 118 * side
        edge = LEFT + 224.0 + 96 * side
        picture.bend([(edge, 382), (x, 382), (x, 360), (x, 318)], "ink")
    picture.text(LEFT, 346, "its gradient", "soft small")
    picture.text(LEFT, 363, "by each weight", "soft small")
    picture.text(619, 106, "their targets", "ink bold", "middle")
    for index, colour in enumerate(("critic1", "critic2")):
        top = 118 + 102 * index
        picture.rect(514, top, 210, 94, f"{colour} box target", radius=10)
        picture.text(619, top + 42, f"critic target {index + 1}", f"{colour} bold", "middle")
        picture.text(619, top + 66, "stays where it is", "soft small", "middle")
    picture.line(LEFT + 330, 392, 619, 392, "soft line dotted")
    picture.line(619, 392, 619, 360, "soft line dotted")
    for turn in (-1, 1):
        picture.line(612, 346 - 7 * turn, 626, 346 + 7 * turn, "ink line thick")
    picture.text(636, 351, "no gradient", "soft small")
    picture.foot("One step of Adam on one summed loss. What set the goal does not move with it.")
    return picture


def step_13() -> Picture:
    """The actor climbs the first critic, every second update."""
    picture = Picture(
        13,
        "The actor climbs the first critic",
        "The value Q1 of the first critic over the action, in one state. The actor's action"
        " moves up the slope, in a few steps towards the top. A time line shows that this"
        " happens at every second update only.",
        510,
    )
    across, down = Axis(LOW, HIGH, 236, 712), Axis(7, 22.4, 314, 112)

    def value(a: float) -> float:
        return 21 - 2.6 * (a - 1.9) ** 2 / (1 + 0.12 * (a - 1.9) ** 2) + 0.5 * math.sin(2 * a)

    def slope(a: float) -> float:
        return (value(a + 1e-5) - value(a - 1e-5)) / 2e-5

    picture.chip(LEFT + 24, 126, 60, "s", "state")
    picture.arrow(LEFT + 54, 143, LEFT + 54, 160, "state")
    picture.chip(LEFT, 178, 108, "actor", "actor")
    picture.arrow(LEFT + 54, 195, LEFT + 54, 212, "action")
    picture.chip(LEFT + 24, 230, 60, "a", "action")
    picture.arrow(LEFT + 54, 247, LEFT + 54, 264, "action")
    picture.chip(LEFT, 282, 108, "critic 1", "critic1")
    picture.bend([(148, 282), (184, 276), (184, 184), (150, 178)], "actor", "line thick")
    picture.text(LEFT, 318, "the slope goes back", "soft small")
    picture.text(LEFT, 335, "to the actor alone", "soft small")

    grid = [LOW + (HIGH - LOW) * index / 100 for index in range(101)]
    picture.curve([(across(a), down(value(a))) for a in grid], "critic1 line thick")
    picture.text(across(2.62), 112, "Q1(s, a)", "critic1 bold")
    picture.ticks(across, 314, (-1, 0, 1, 2, 3))
    picture.text(across(1), 352, "action a in one state s", "soft small", "middle")
    a = -0.35
    path = [a]
    for _ in range(5):
        a += 0.115 * slope(a)
        path.append(a)
    for old, new in itertools.pairwise(path):
        x1, y1, x2, y2 = across(old), down(value(old)), across(new), down(value(new))
        length = math.hypot(x2 - x1, y2 - y1)
        if length > 24:
            ux, uy = (x2 - x1) / length, (y2 - y1) / length
            lift = (-10 * uy, 10 * ux)
            start = (x1 + 6 * ux - lift[0], y1 + 6 * uy - lift[1])
            end = (x2 - 6 * ux - lift[0], y2 - 6 * uy - lift[1])
            picture.arrow(*start, *end, "actor", "line")
    for index, a in enumerate(path):
        kind = "actor solid" if index == len(path) - 1 else "actor solid faint"
        picture.circle(across(a), down(value(a)), 7 if index in (0, len(path) - 1) else 5, kind)
    x, y = across(path[0]), down(value(path[0]))
    picture.text(x + 16, y + 20, "the actor\u2019s action now", "actor")

    when = Axis(1, 8, 200, 680)
    picture.text(LEFT, 414, "update", "soft")
    picture.line(when.start - 22, 409, when.end + 22, 409, "rim line")
    for update in range(1, 9):
        moves = update % 2 == 0
        picture.circle(when(update), 409, 13, "actor solid" if moves else "card solid")
        picture.circle(when(update), 409, 13, "actor line" if moves else "soft line thin")
        colour = "card bold" if moves else "soft"
        picture.text(when(update), 414, str(update), colour, "middle")
    picture.text(
        when(8) + 2,
        446,
        "policy_freq = 2: the actor moves at the filled ones",
        "actor small",
        "end",
    )
    picture.foot("Twice the evidence from the critics before the actor moves once.")
    return picture


def step_14() -> Picture:
    """A weight of the actor, and of the target that follows it."""
    half = round(math.log(0.5) / math.log(1 - TAU))
    picture = Picture(
        14,
        "The actor target follows the actor",
        "One weight of the actor jumps and jitters over 1000 target updates; the actor target,"
        f" with tau 0.005, follows smoothly and closes half of a gap in {half} target updates."
        " A faster target with tau 0.1 would copy the jitter.",
        440,
    )
    count, jump = 1000, 150
    across, down = Axis(0, count, 70, 640), Axis(-0.25, 1.25, 330, 96)
    model, slow, fast = [], [0.0], [0.0]
    for n in range(count + 1):
        jitter = 0.1 * (2 * scatter(n // 8 + 3) - 1)
        model.append((0.0 if n < jump else 1.0) + jitter)
    model[0] = 0.0
    for n in range(count):
        slow.append(TAU * model[n + 1] + (1 - TAU) * slow[-1])
        fast.append(0.1 * model[n + 1] + 0.9 * fast[-1])
    for values, kind in (
        (model, "actor line thin pale"),
        (fast, "ink line thin"),
        (slow, "actor line thick dashed"),
    ):
        step = 2
        points = [(across(n), down(values[n])) for n in range(0, count + 1, step)]
        picture.curve(points, kind)
    picture.line(70, 96, 70, 330, "soft line thin")
    picture.text(60, down(0) + 5, "0", "soft small", "end")
    picture.text(60, down(1) + 5, "1", "soft small", "end")
    picture.text(60, down(0.5) + 5, "0.5", "soft small", "end")
    picture.ticks(across, 330, (0, 200, 400, 600, 800, 1000))
    picture.text(across(500), 372, "target updates (one per two updates)", "soft small", "middle")
    x = across(jump + half)
    picture.line(70, down(0.5), x, down(0.5), "actor line thin dotted")
    picture.line(x, down(slow[jump + half]), x, 330, "actor line thin dotted")
    picture.circle(x, down(slow[jump + half]), 5, "actor solid")
    picture.text(x + 12, down(0.5) + 18, f"half of the way after {half} target updates", "actor")
    picture.text(650, down(1.14), "actor", "actor bold")
    picture.text(650, down(0.93), "target,", "actor bold")
    picture.text(650, down(0.93) + 18, "tau 0.005", "actor bold")
    picture.text(across(jump) + 24, down(0.8), "tau 0.1 shakes along", "ink small")
    picture.foot("Each time, the target keeps 99.5 % of itself and takes 0.5 % from the actor.")
    return picture


def step_15() -> Picture:
    """Who moves at which update."""
    picture = Picture(
        15,
        "The critic target follows the critic",
        "A time table of updates 1 to 8: both critics move at every update, the actor and both"
        " targets at every second. Below, how much of its first weights the critic target still"
        " has: 98.0 per cent after eight updates.",
        460,
    )
    x = Axis(1, 8, 268, 694)
    picture.text(LEFT, 104, "update", "soft")
    lanes = (
        ("both critics", "steps 4\u201312", ("critic1", "critic2"), 1, False),
        ("actor", "step 13", ("actor",), 2, False),
        ("actor target", "step 14", ("actor",), 2, True),
        ("critic target", "step 15", ("critic1", "critic2"), 2, True),
    )
    for update in range(1, 9):
        picture.text(x(update), 104, str(update), "ink bold", "middle")
        if update % 2 == 0:
            picture.rect(x(update) - 28, 114, 56, 196, "soft tint", radius=8)
    for index, (name, where, colours, every, target) in enumerate(lanes):
        y = 142 + 48 * index
        picture.text(LEFT, y + 5, name, f"{colours[0] if len(colours) == 1 else 'ink'} bold")
        picture.text(LEFT + 112, y + 5, where, "soft small")
        picture.line(x.start - 28, y, x.end + 28, y, "rim line thin")
        for update in range(1, 9):
            moves = update % every == 0
            for twin, colour in enumerate(colours):
                width = 40 / len(colours)
                left = x(update) - 20 + width * twin
                if moves:
                    kind = f"{colour} box target" if target else f"{colour} solid"
                    picture.rect(left + 1, y - 14, width - 2, 28, kind, radius=5)
            if not moves:
                picture.circle(x(update), y, 3, "soft solid")
    across, down = x, Axis(97.6, 100, 372, 334)
    picture.text(LEFT, 344, "first weights still in", "soft small")
    picture.text(LEFT, 361, "the critic target", "soft small")
    left = 100.0
    for update in range(1, 9):
        before = left
        left *= 1 - TAU * (update % 2 == 0)
        if before != left:
            picture.line(across(update), down(before), across(update), down(left), "critic1 line")
        end = across(update) + (x(2) - x(1)) if update < 8 else across(8) + 28
        picture.line(across(update), down(left), end, down(left), "critic1 line")
        if update % 2 == 0:
            words = f"{number(left)} %"
            picture.text(across(update), 392, words, "critic1 small bold", "middle")
    picture.line(across(1) - 28, down(100), across(1), down(100), "critic1 line")
    picture.foot(
        "The critics chase a goal that barely moves; a goal that ran along could run away."
    )
    return picture


STEPS = (
    step_01,
    step_02,
    step_03,
    step_04,
    step_05,
    step_06,
    step_07,
    step_08,
    step_09,
    step_10,
    step_11,
    step_12,
    step_13,
    step_14,
    step_15,
)


def draw(folder: Path) -> None:
    """Write step-01.svg to step-15.svg into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for step in STEPS:
        picture = step()
        path = folder / f"step-{picture.step:02}.svg"
        path.write_text(picture.svg(), encoding="utf-8", newline="\n")


def main() -> None:
    """Draw into docs/steps."""
    folder = Path(__file__).resolve().parent / "steps"
    draw(folder)
    print(f"{len(STEPS)} pictures in {folder}")


if __name__ == "__main__":
    main()
