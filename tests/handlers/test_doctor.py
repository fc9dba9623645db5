"""The doctor finds each kind of damage that is planted in a ledger, repairs what it says it can, and writes
nothing unless it is told to. On the real control plane: tests/e2e/test_doctor.py."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from berth.errors import BadInputError, MovedError, PausedError, StoreFailedError
from berth.handlers.doctor import Doctor, Examination
from tests.support.builders.copies import pause
from tests.support.builders.damage import DAMAGES, NODES, POOLS, garbage, write
from tests.support.builders.places import Place
from tests.support.builders.pools_stage import PoolsStage, pools_staged


@pytest.fixture
def stage(tmp_path: Path, place: Place) -> Iterator[PoolsStage]:
    with pools_staged(tmp_path, place, POOLS, NODES) as found:
        found.serve_node_status()
        yield found


def doctor(stage: PoolsStage, *agreed: str) -> Doctor:
    return Doctor(
        stage.store,
        stage.cluster,
        stage.settings,
        agreed=agreed,
        clock=stage.time,
        monotonic=stage.time,
        sleep=stage.time.advance,
    )


def kinds(found: Examination) -> list[str]:
    return [each.kind for each in found.findings]


def documents(stage: PoolsStage) -> dict[str, bytes | None]:
    return dict(stage.store.changes(None).documents)


def test_in_a_ledger_that_is_well_nothing_differs(stage: PoolsStage) -> None:
    stage.claim_object("mine", "k80", count=1)
    stage.bound_pod(ip=1, seat=2, slot=1)
    stage.bound_pod(k80=1, claims="mine")
    stage.pod(ip=1)
    stage.reconcile()
    assert doctor(stage).examine().findings == []


@pytest.mark.parametrize("name", DAMAGES)
def test_each_damage_is_found_and_repaired_where_that_is_said(stage: PoolsStage, name: str) -> None:
    damage = DAMAGES[name]
    damage.plant(stage)
    before, versions = documents(stage), stage.versions()
    examined = doctor(stage)
    found = examined.examine()
    assert set(kinds(found)) == {damage.kind}, found
    assert len(found.findings) == 1, found
    assert [each.repairs for each in found.findings] == [not damage.left]
    assert (documents(stage), stage.versions()) == (before, versions)
    if not found.blocked:
        examined.fix(found)
    left = examined.examine()
    assert kinds(left) == list(damage.left), left


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("port p-0", []),  # as bind wrote it
        ("rack r1", []),
        ("p-0:80", []),
        ("p-1:80", ["mistold"]),
        ("use p-1", ["mistold"]),
        ("p-0 p-1", ["mistold"]),
    ],
)
def test_a_text_of_a_pool_s_former_template_is_wrong_where_it_names_another_unit(
    stage: PoolsStage, said: str, found: list[str]
) -> None:
    stage.bound_pod("a", port=1)
    stage.pools(port={**POOLS["port"], "annotations": {"example.com/port": "{unit}:80"}})
    stage.note("a", {"example.com/port": said})
    assert kinds(doctor(stage).examine()) == found


@pytest.mark.parametrize("key", ["epoch", "cluster", "domain/k80/n1", "domain/ip/n1"])
def test_a_person_may_have_any_document_thrown_away_that_can_not_be_read(stage: PoolsStage, key: str) -> None:
    garbage(key)(stage)
    examined = doctor(stage, key)
    seen = examined.examine()
    assert [(one.kind, one.key, one.repairs) for one in seen.findings] == [("unreadable", key, True)]
    assert examined.fix(seen).forgotten == [key]
    assert kinds(examined.examine()) == []
    assert ("n1", "bound") in stage.claims().values()


@pytest.mark.parametrize(("wrong", "there"), [((), "none"), (("domain/ip/n1",), r"domain/ip/n1 \(did you")])
def test_only_what_can_not_be_read_may_be_named_for_that(
    stage: PoolsStage, wrong: tuple[str, ...], there: str
) -> None:
    for key in wrong:
        garbage(key)(stage)
    before = documents(stage)
    with pytest.raises(
        BadInputError, match=f"^there is no unreadable document domain/ip/n2; there are: {there}"
    ):
        doctor(stage, *wrong, "domain/ip/n2").examine()
    assert documents(stage) == before


@pytest.mark.parametrize("moved", [False, True])
def test_nothing_is_thrown_away_once_a_copy_has_begun(stage: PoolsStage, moved: bool) -> None:
    """It began after the doctor had looked. The mark that it leaves is all that keeps one ledger at work."""
    garbage("domain/ip/n1")(stage)
    examined = doctor(stage)
    seen = examined.examine()
    pause(stage.store, moved)
    before = documents(stage)
    with pytest.raises((PausedError, MovedError), match="redis://there"):
        examined.fix(seen)
    assert documents(stage) == before


@pytest.mark.parametrize("body", [b"{}", b'{"of": "another version", "capacity": "many"}'])
def test_what_was_mended_or_written_anew_meanwhile_is_not_thrown_away(stage: PoolsStage, body: bytes) -> None:
    garbage("domain/ip/n1")(stage)
    examined = doctor(stage)
    seen = examined.examine()
    write(stage.store, "domain/ip/n1", body)
    epoch = stage.store.read(["epoch"])["epoch"]
    with suppress(StoreFailedError):  # what another version wrote stops reconcile
        assert examined.fix(seen).forgotten == []
    assert stage.store.read(["epoch"])["epoch"] == epoch
