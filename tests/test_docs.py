"""The generated pages of docs/ say what the code declares."""

from pathlib import Path

import pytest

from scripts import docs
from sidecar.api.annotations import ANNOTATIONS, MARKS, ON_ADAPTERS
from sidecar.api.conditions import ConditionReason
from sidecar.api.reasons import Reason
from sidecar.api.settings import SECRET_FIELDS, AgentSettings


def test_the_pages_are_up_to_date() -> None:
    assert docs.stale(docs.ROOT) == [], "run `make docs`"
    assert docs.main(["--check"]) == 0


def test_every_word_that_users_meet_is_explained() -> None:
    reasons = docs.reasons()
    for reason in [*Reason, *ConditionReason]:
        assert f"| `{reason.value}` | {reason.sentence} |" in reasons
    annotations = docs.annotations()
    for key in [each.key for each in (*ANNOTATIONS, *ON_ADAPTERS, *MARKS)]:
        assert f"`{key}`" in annotations
    settings = docs.settings()
    for name in AgentSettings.model_fields:
        assert f"`LORA_SIDECAR_{name.upper()}`" in settings


def test_no_secret_has_an_option() -> None:
    lines = docs.settings().splitlines()
    for name in SECRET_FIELDS:
        (line,) = [line for line in lines if f"`LORA_SIDECAR_{name.upper()}`" in line]
        assert "`--" not in line


@pytest.mark.parametrize("write", docs.PAGES.values(), ids=docs.PAGES)
def test_every_row_of_a_table_has_all_its_cells(write: object) -> None:
    assert callable(write)
    width = 0
    for line in write().splitlines():
        cells = line.replace("\\|", "").count("|")
        if cells and width:
            assert cells == width, line
        width = cells


def test_a_stale_or_missing_page_is_noticed_and_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(docs, "ROOT", tmp_path)
    assert docs.main([]) == 0
    assert docs.main(["--check"]) == 0
    (tmp_path / "docs" / "reasons.md").write_text("old")
    (tmp_path / "docs" / "settings.md").unlink()
    assert docs.main(["--check"]) == 1
    assert "docs/reasons.md, docs/settings.md differ" in capsys.readouterr().err
    assert docs.main([]) == 0
    assert docs.stale(tmp_path) == []


@pytest.mark.field(19)
def test_the_readme_says_what_remains_where_an_engine_finds_adapters_by_itself() -> None:
    assert (
        "An engine that finds adapters in a folder by itself"
        in (docs.ROOT / "README.md").read_text()
    )
