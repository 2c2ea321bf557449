"""Draw the two pictures of docs/td7.md, with the helpers of draw_steps.py: `make figures`."""

from pathlib import Path

from draw_steps import LEFT, RIGHT, Axis, Picture, Point

# What belongs to the encoder. In the steps it is the Bellman target's colour, which is not here.
ENCODER = "goal"
PRIME = "\u2032"


class Diagram(Picture):
    """A picture that belongs to no single step."""

    def __init__(self, title: str, description: str, height: int) -> None:
        super().__init__(0, title, description, height)

    @property
    def name(self) -> str:
        """What the file says that it shows."""
        return f"TD7: {self.title}"

    def heading(self) -> None:
        """The title, and whose it is."""
        self.rect(LEFT, 24, 54, 32, "ink solid", radius=16)
        self.text(LEFT + 27, 46, "TD7", "card bold", "middle")
        self.text(LEFT + 68, 46, self.title, "ink head bold")

    def part(self, y: float, words: str, where: str) -> None:
        """The headline of one part."""
        self.text(LEFT, y, words, "ink bold")
        self.text(RIGHT, y, where, "soft small", "end")

    def box(self, x: float, y: float, width: float, words: str, kind: str) -> None:
        """A network, centred at height y; of two words, one stands below the other."""
        self.rect(x, y - 22, width, 44, kind.replace(" ", " box ", 1), radius=10)
        lines = words.split("|")
        for index, line in enumerate(lines):
            down = y + 5 + 17 * (index - (len(lines) - 1) / 2)
            self.text(x + width / 2, down, line, f"{kind.split()[0]} bold", "middle")

    def rail(self, start: Point, y: float, branch: Point, end: float, colour: str) -> None:
        """From a value up or down to height y, and along; on the way, a branch to a network."""
        self.curve([start, (start[0], y), (end - 8, y)], f"{colour} line")
        self.arrow(end - 12, y, end, y, colour)
        if branch != start:
            self.arrow(branch[0], y, *branch, colour)


def learning(picture: Diagram, y: float) -> None:
    """The encoder learns to predict."""
    below = y + 64
    for at, state, zs in ((y, "s", "zs"), (below, f"s{PRIME}", f"zs{PRIME}")):
        picture.chip(36, at, 48, state, "state")
        picture.arrow(86, at, 106, at, "state")
        picture.box(108, at, 52, "f", f"{ENCODER} ")
        picture.arrow(162, at, 178, at, ENCODER)
        picture.chip(180, at, 48, zs, ENCODER)
    picture.chip(256, y - 42, 40, "a", "action")
    picture.flow(298, y - 42, 328, y - 8, "action")
    picture.arrow(230, y, 328, y, ENCODER)
    picture.box(330, y, 52, "g", f"{ENCODER} ")
    picture.arrow(384, y, 400, y, ENCODER)
    picture.chip(402, y, 54, "zsa", ENCODER)
    picture.flow(458, y, 534, y + 22, ENCODER)
    picture.flow(230, below, 534, y + 42, ENCODER)
    picture.text(256, below + 22, "the goal: no gradient goes this way", "soft small")
    picture.rect(536, y + 10, 188, 44, "ink box", radius=8)
    picture.text(630, y + 37, "mean squared error", "ink bold", "middle")
    picture.text(630, y + 72, "moves f and g, nothing else", "soft small", "middle")


def using(picture: Diagram, y: float, target: bool) -> None:
    """What the actor and the twins get from an encoder."""
    dashes = " target" if target else " "
    s, a, zs, zsa = (f"{name}{PRIME}" if target else name for name in ("s", "a", "zs", "zsa"))
    last, of = ("|target", "t") if target else ("", "")
    picture.rail((60, y - 17), y - 62, (292, y - 24), 546, "state")
    picture.rail((372, y - 17), y - 40, (372, y - 17), 546, "action")
    picture.rail((204, y + 17), y + 46, (434, y + 24), 546, ENCODER)
    picture.chip(36, y, 48, s, "state")
    picture.arrow(86, y, 106, y, "state")
    picture.box(108, y, 52, "f", ENCODER + dashes)
    picture.arrow(162, y, 178, y, ENCODER)
    picture.chip(180, y, 48, zs, ENCODER)
    picture.arrow(230, y, 244, y, ENCODER)
    picture.box(246, y, 92, f"actor{last}", f"actor{dashes}")
    picture.arrow(340, y, 351, y, "action")
    picture.chip(352, y, 40, a, "action")
    picture.arrow(394, y, 406, y, "action")
    picture.box(408, y, 52, "g", ENCODER + dashes)
    picture.arrow(462, y, 476, y, ENCODER)
    picture.chip(478, y, 52, zsa, ENCODER)
    picture.arrow(532, y, 546, y, ENCODER)
    picture.rect(547, y - 74, 7, 132, "ink solid", radius=3)  # all four, side by side
    for twin, colour in enumerate(("critic1", "critic2")):
        middle = y - 43 + 70 * twin
        picture.arrow(556, middle, 576, middle, "ink")
        picture.box(578, middle, 92, f"twin {twin + 1}{last}", colour + dashes)
        picture.arrow(672, middle, 688, middle, colour)
        picture.text(692, middle + 5, f"Q{of}{twin + 1}", f"{colour} bold")


def networks() -> Diagram:
    """Which networks there are, and what goes into each."""
    picture = Diagram(
        "What goes into each network",
        "Three parts. First, the encoder learns: f embeds the state s as zs, g embeds zs and the"
        " action a as zsa, and zsa is compared with the embedding of the next state. Second, with"
        " the fixed encoder: the actor sees s and zs, both twins see s, a, zsa and zs. Third, with"
        " the fixed target encoder: the targets see the same of the next state.",
        742,
    )
    picture.part(98, "The encoder learns, at every update", "steps A and B")
    learning(picture, 168)
    picture.line(LEFT, 282, RIGHT, 282, "rim line thin")
    picture.part(
        308, "The fixed encoder: for the critics, the actor, and play", "steps D, 10 to 13"
    )
    using(picture, 402, target=False)
    words = "a: in steps 10 to 12 the action that was played, in step 13 the actor\u2019s own"
    picture.text(LEFT, 476, words, "soft small")
    picture.line(LEFT, 494, RIGHT, 494, "rim line thin")
    picture.part(520, "The fixed target encoder: for the targets", "steps C, 5 to 7")
    using(picture, 614, target=True)
    picture.text(LEFT, 680, "a\u2032: with the noise of step 6 on it", "soft small")
    picture.foot(
        "The twins see the state and the action themselves, and what the encoder makes of them."
    )
    return picture


def copies() -> Diagram:
    """What is copied to what, and when."""
    picture = Diagram(
        "What is copied at every 250th update",
        "A time line of updates 0 to 1000. The encoder, the actor and the twins learn all the time."
        " At updates 250, 500 and 750, the fixed encoder becomes the fixed target encoder, the"
        " encoder becomes the fixed encoder, and actor and twins are copied to their targets. The"
        " limits of values become those of all targets so far.",
        530,
    )
    every = 250
    x = Axis(0, 4 * every, 196, RIGHT)
    picture.text(LEFT, 92, "update", "soft")
    for update in range(0, 5 * every, every):
        edge = "start" if update == 0 else "end" if update == 4 * every else "middle"
        picture.text(x(update), 92, str(update), "ink bold", edge)

    def name(y: float, words: str, below: str) -> None:
        picture.text(LEFT, y + 13, words, "ink bold")
        picture.text(LEFT, y + 30, below, "soft small")

    def learner(y: float, words: str, below: str, colours: tuple[str, ...]) -> None:
        name(y, words, below)
        tall, parts = 34 / len(colours), 40
        for index, colour in enumerate(colours):
            for part in range(parts):
                left = x(part * 4 * every / parts)
                width = (x.end - x.start) / parts - 1
                share = f"{0.15 + 0.75 * part / (parts - 1):.2f}"
                box = {"x": left, "y": y + tall * index, "width": width, "height": tall - 1}
                picture.shape("rect", f"{colour} solid", **box, fill_opacity=share)

    def copied(y: float, words: str, below: str, kind: str, cells: tuple[str, ...]) -> None:
        name(y, words, below)
        for index, cell in enumerate(cells):
            left = x(index * every)
            picture.rect(left + 3, y, x(every) - x(0) - 6, 34, kind, radius=7)
            colour = kind.split()[0]
            picture.text(left + 66, y + 22, cell, f"{colour} small bold", "middle")

    def arrows(y: float, colour: str) -> None:
        for copy in (1, 2, 3):
            picture.arrow(x(copy * every) - 9, y, x(copy * every) + 9, y + 22, colour, "line thick")

    dashed = f"{ENCODER} box target"
    first = "from the start"
    later = tuple(f"of update {every * index}" for index in (1, 2, 3))
    for copy in (1, 2, 3):
        picture.line(x(copy * every), 102, x(copy * every), 466, "soft line thin dotted")
    learner(108, "encoder", "learns", (ENCODER,))
    arrows(143, ENCODER)
    copied(166, "fixed encoder", "of critics and actor", f"{ENCODER} box", (first, *later))
    arrows(201, ENCODER)
    copied(224, "fixed target", "encoder of the targets", dashed, (first, first, *later[:2]))
    learner(294, "actor, twins", "learn", ("actor", "critic1", "critic2"))
    arrows(329, "ink")
    copied(352, "their targets", "steps 5 and 7", "ink box target", (first, *later))
    seen = tuple(f"seen by {every * index}" for index in (1, 2, 3))
    copied(422, "value limits", "of step 8", "soft box", ("0 and 0", *seen))
    picture.foot("A target sees the embeddings that its weights were learned with, not newer ones.")
    return picture


PICTURES = {"networks": networks, "copies": copies}


def draw(folder: Path) -> None:
    """Write networks.svg and copies.svg into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, picture in PICTURES.items():
        path = folder / f"{name}.svg"
        path.write_text(picture().svg(), encoding="utf-8", newline="\n")


def main() -> None:
    """Draw into docs/td7."""
    folder = Path(__file__).resolve().parent / "td7"
    draw(folder)
    print(f"{len(PICTURES)} pictures in {folder}")


if __name__ == "__main__":
    main()
