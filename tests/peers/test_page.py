"""The page of peers matches the cases."""

from __future__ import annotations

import re
from collections import Counter

from tests.features.rows import ROWS
from tests.peers.page import FEATURES, FOLDER, PAGE, PEERS, find_cases, make_page
from tests.peers.reasons import PAGES


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == make_page(), "run `python -m tests.peers.page`"


def test_every_case_names_a_test_of_its_peer_and_is_there_once() -> None:
    names = Counter((folder, case.test) for folder, _, case in find_cases())
    assert [name for name, count in names.items() if count > 1] == []
    assert [name for _, name in names if not re.match(r"\w+\.py::\w", name)] == []


def test_every_folder_is_that_of_a_peer_and_every_module_has_its_features() -> None:
    modules = {f"{path.parent.name}/{path.stem}" for path in FOLDER.glob("*/test_*.py")}
    assert {module.partition("/")[0] for module in modules} == PEERS.keys()
    assert modules == FEATURES.keys()
    assert {row for rows in FEATURES.values() for row in rows.split()} <= ROWS.keys()


def test_every_reason_is_some_case_s_and_every_case_has_numbers_for_it() -> None:
    differing = [case for _, _, case in find_cases() if case.differs]
    assert {case.differs.why for case in differing if case.differs} == PAGES.keys()
    assert [case.test for case in differing if case.differs and max(case.says) not in case.differs.ours] == []
