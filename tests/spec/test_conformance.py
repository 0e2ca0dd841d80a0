"""docs/conformance.md names only tests that exist and that name the statement they prove."""

import re
from pathlib import Path

TESTS = Path(__file__).parent.parent
PAGE = (TESTS.parent / "docs" / "conformance.md").read_text()
ROWS = re.findall(r"^\| (\d+\.\d+\.\d+-\d+) \| (.+) \| (.+) \|$", PAGE, re.MULTILINE)


def statements(text: str) -> set[str]:
    """Every statement a text names; `3.1.2-4..6` names three."""
    found: set[str] = set()
    for section, first, last in re.findall(r"MQTT-(\d+\.\d+\.\d+)-(\d+)(?:\.\.(\d+))?", text):
        found.update(f"{section}-{number}" for number in range(int(first), int(last or first) + 1))
    return found


def test_every_statement_has_its_proof() -> None:
    proved = {number for number, _, proof in ROWS if "`" in proof}
    assert len(ROWS) > 240
    for number, _, proof in ROWS:
        other = re.fullmatch(r"with \[MQTT-(.+)\]", proof)
        if other is not None:
            assert other.group(1) in proved, number
        else:
            assert "`" in proof or proof in ("the client's duty", "we send none"), number


def test_every_named_module_names_the_statement() -> None:
    for number, _, proof in ROWS:
        for name in re.findall(r"`([a-z_/]+)`", proof):
            if (TESTS / name).is_dir():
                continue
            text = (TESTS / f"{name}.py").read_text()
            assert number in statements(text) or "(" in proof, (number, name)
            for test in re.findall(r"\((test_\w+)\)", proof):
                assert f"def {test}(" in text


def test_other_tables_name_modules_that_exist() -> None:
    for name in re.findall(r"`((?:spec|broker|clients)/[a-z_0-9]+)`", PAGE):
        assert (TESTS / f"{name}.py").exists(), name
