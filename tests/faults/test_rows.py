from pathlib import Path

import pytest

from faults.rows import ROWS


@pytest.mark.parametrize("name", ROWS)
def test_a_few_cases_of_each_row_pass(name: str, tmp_path: Path) -> None:
    row = ROWS[name]
    cases = list(row.cases(row.short, tmp_path))
    assert cases
    assert [case for case in cases if case[1]] == []
