import json
import os
from pathlib import Path

import pytest

from t3d.base import files
from t3d.base.errors import BadInput


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"[" * 100_000, "nested too deeply"),
        (b"[" * 60 + b"]" * 60, "nested more than 50 deep"),
        (b'{"a":' * 60 + b"1" + b"}" * 60, "nested more than 50 deep"),
        (b"[" + b"[]," * 600_000 + b"1]", "more than 600,000 values"),
        (b"[NaN]", "NaN is not a number"),
        (b"[" + b"9" * 5000 + b"]", "."),
        (b'"\xff"', "."),
        (b"", "."),
    ],
)
def test_json_that_would_take_too_much_is_refused(content: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        files.parse_json(content)


def test_json_of_a_usual_form_is_read() -> None:
    value = [{"a": ["[" * 100, {"b": None}]}, *[[1]] * 100]
    assert files.parse_json(json.dumps(value).encode()) == value
    assert files.parse_json(b'"' + b"[" * 100 + b'"') == "[" * 100


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "zero").symlink_to("/dev/zero")
    for name in ("pipe", "folder", "zero", "/dev/zero"):
        with pytest.raises(BadInput, match=r"is not a regular file$"):
            files.read(tmp_path / name, 10)
    with pytest.raises(BadInput, match=r"cannot be read: No such file or directory$"):
        files.read(path, 10)
    files.require_regular(path)
    path.write_bytes(b"12345678901")
    with pytest.raises(BadInput, match=r"has 11 bytes; expected at most 10$"):
        files.read(path, 10)
    assert files.read(path, 11) == b"12345678901"
    files.require_regular(path)
