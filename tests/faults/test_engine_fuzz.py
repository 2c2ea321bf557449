import dataclasses

from faults.engine_fuzz import FuzzCase, judge
from t3d import Config


class Defective(FuzzCase):
    """A case in which the fused engine has a small defect."""

    def __init__(self, number: int, updates: int, knob: str) -> None:
        super().__init__(number, updates)
        self._knob = knob

    def config(self, engine: str) -> Config:
        config = super().config(engine)
        value = getattr(config, self._knob) * (1 + 1e-6)
        return dataclasses.replace(config, **{self._knob: value}) if engine == "fused" else config


def test_the_fuzzer_notices_a_defect_of_one_part_in_a_million() -> None:
    assert judge(FuzzCase(26, 20)).word == "agree"
    for knob in ("tau", "learning_rate"):
        verdict = judge(Defective(26, 20, knob))
        assert (verdict.word, "apart in float64" in verdict.wrong) == ("differ", True)
