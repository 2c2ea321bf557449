import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from faults import scorecard
from faults.common import Case, Row


def test_what_was_counted_with_this_commit_is_not_counted_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls: list[tuple[int, int]] = []

    def cases(count: int, folder: Path, part: int = 0) -> Iterator[Case]:
        calls.append((count, part))
        if len(calls) == 3:
            raise KeyboardInterrupt
        yield from [("good", ""), ("bad", "it broke")]

    monkeypatch.setattr(scorecard, "ROWS", {"R0": Row("all", 30, 1, cases, parts=3)})
    monkeypatch.setattr(scorecard, "commit", lambda: "c0ffee")
    monkeypatch.setenv("XDG_CONFIG_HOME", "")
    file = tmp_path / "counted.json"
    monkeypatch.setattr(sys, "argv", ["scorecard.py", "R0", "--keep", str(file)])
    with pytest.raises(KeyboardInterrupt):
        scorecard.main()
    assert [each["part"] for each in json.loads(file.read_text())] == [0, 1]
    assert scorecard.main() == 1
    assert calls == [(10, 0), (10, 1), (10, 2), (10, 2)]
    assert "| R0 | all | 3/6 |" in capsys.readouterr().out
    monkeypatch.setattr(scorecard, "commit", lambda: "c0ffee+")
    scorecard.main()
    assert calls[4:] == [(10, 0), (10, 1), (10, 2)]
