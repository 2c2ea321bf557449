import errno
import io
import os
import sys
from pathlib import Path
from typing import Any, TextIO, cast

import pytest

import t3d
from helpers.commands import TINY_FLAGS
from t3d.base import output
from t3d.base.output import Output
from t3d.cli.main import main


class Failing(io.StringIO):
    """A stream that raises."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    def write(self, text: str) -> int:
        raise self.error


CLOSED = io.StringIO()
CLOSED.close()
BROKEN: dict[str, Any] = {
    "full": Failing(OSError(errno.ENOSPC, "No space left on device")),
    "terminal gone": Failing(OSError(errno.EIO, "Input/output error")),
    "closed": CLOSED,
    "none": None,
}


@pytest.mark.parametrize("stream", BROKEN.values(), ids=BROKEN)
def test_an_output_that_fails_says_so_once_and_is_silent_from_then_on(
    stream: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    out = Output(stream)
    for _ in range(3):
        out.write("progress\n")
        out.flush()
    assert not out.isatty()
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("t3d: nothing more is shown, the output cannot be written: ")


@pytest.mark.parametrize("stream", BROKEN.values(), ids=BROKEN)
def test_an_essential_output_that_fails_is_an_error(stream: Any) -> None:
    with pytest.raises(t3d.CannotWrite, match="the output cannot be written: "):
        Output(stream, essential=True).write("the result\n")


@pytest.mark.parametrize("error", [BlockingIOError(), RuntimeError("reentrant call")])
def test_what_passes_does_not_silence_an_output(error: Exception) -> None:
    stream = Failing(error)
    out = Output(stream, essential=True)
    out.write("lost")
    stream.write = io.StringIO.write.__get__(stream)  # type: ignore[method-assign]
    out.write("shown")
    assert stream.getvalue() == "shown"


def test_characters_that_an_encoding_lacks_are_replaced() -> None:
    raw = io.BytesIO()
    out = Output(io.TextIOWrapper(raw, "ascii"), essential=True)
    out.writelines(["-1.5 ± 0.2, ", "Müller, ", "\udcff\n"])
    out.flush()
    assert raw.getvalue() == b"-1.5 +/- 0.2, M\\xfcller, \\udcff\n"


def test_with_a_stderr_that_fails_a_complaint_is_lost_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for stream in BROKEN.values():
        monkeypatch.setattr(sys, "stderr", stream)
        output.complain("it cannot be heard")
        with output.guarded(essential=False):
            sys.stderr.write("neither can this\n")


@pytest.mark.parametrize(
    ("words", "code"), [("presets", 2), ("--version", 2), ("train --help", 2), ("trian", 2)]
)
def test_a_result_that_cannot_be_printed_is_one_line_and_exit_code_2(
    words: str, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert main(words.split()) == code
        monkeypatch.undo()
        assert capsys.readouterr().err.count("\n") == 1
        _empty(full)


def test_a_reader_that_has_left_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        assert main(["presets"]) == 0
        _empty(pipe)


def test_a_run_that_cannot_be_shown_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert main(["train", *TINY_FLAGS, "--run", str(run), "--no-video"]) == 0
        monkeypatch.undo()
        _empty(full)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("cannot be written: No space left on device")
    assert t3d.inspect(run)["finished"]
    assert (run / "score.json").exists()


def _empty(stream: TextIO) -> None:
    """Point the file elsewhere, so that it can be closed."""
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), cast(Any, stream).fileno())


def test_a_missing_standard_file_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    stdin = os.dup(0)
    try:
        os.close(0)
        output.open_missing()
        assert os.path.sameopenfile(0, os.open(os.devnull, os.O_RDONLY))
        assert os.get_inheritable(0)
    finally:
        os.dup2(stdin, 0)
        os.close(stdin)
