"""Where a path lies: shared mounts, kinds of file systems, and what to watch."""

from pathlib import Path

import pytest

from sidecar.agent.mounts import MountTable, Place, Shared, leads_outside, spots

TABLE = """\
1 0 254:0 / / rw,relatime - ext4 /dev/vda rw
2 1 0:40 / /models rw,relatime shared:3 - nfs4 server:/export rw
3 2 0:41 / /models/cache rw - tmpfs tmpfs rw
4 1 0:42 / /with\\040space rw - fuse.s3fs s3fs rw
5 1 0:43 / /covered rw - ext4 /dev/vdb rw
6 5 0:44 / /covered rw - ceph mon:/ rw
"""


@pytest.fixture
def table(tmp_path: Path) -> MountTable:
    source = tmp_path / "mountinfo"
    source.write_text(TABLE)
    return MountTable.read(str(source))


@pytest.mark.parametrize(
    ("path", "local"),
    [
        pytest.param("/data/a", True, id="the root file system is a disk"),
        pytest.param("/models/a", False, id="below NFS"),
        pytest.param("/models", False, id="the mount point itself"),
        pytest.param("/models/cache/a", True, id="a disk mounted below NFS"),
        pytest.param("/modelsaurus", True, id="a name that only begins like a mount"),
        pytest.param("/with space/a", False, id="a mount point with an escaped space, FUSE"),
        pytest.param("/covered/a", False, id="the later of two mounts at one place"),
    ],
)
def test_the_kind_of_file_system_is_that_of_the_innermost_mount(
    table: MountTable, path: str, local: bool
) -> None:
    assert table.local(path) is local


@pytest.mark.parametrize(
    "kind",
    [
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "fuse",
        "fuse.juicefs",
        "fuseblk",
        "lustre",
        "ceph",
        "gpfs",
        "9p",
        "virtiofs",
    ],
)
def test_network_file_systems_are_not_local(kind: str) -> None:
    assert not MountTable({"/": kind}).local("/a")


@pytest.mark.parametrize("content", ["", "1 2\n", "no mounts here - at all\n"])
def test_without_a_readable_mount_table_nothing_is_local(tmp_path: Path, content: str) -> None:
    source = tmp_path / "mountinfo"
    source.write_text(content)
    assert not MountTable.read(str(source)).local("/a")
    assert not MountTable.read(str(tmp_path / "missing")).local("/a")


def test_shared_mounts_are_taken_as_written_but_for_slashes_and_what_is_not_absolute() -> None:
    assert Shared.of(["/models/", "//a/./b", "relative", ""]).roots == ("/models", "/a/b")


@pytest.mark.parametrize(
    ("path", "inside"),
    [
        ("/models", True),
        ("/models/a", True),
        ("/models-2/a", False),
        ("/other", False),
        ("/", False),
    ],
)
def test_a_path_is_shared_when_it_lies_in_a_shared_mount(path: str, inside: bool) -> None:
    assert Shared.of(["/models", "/more"]).holds(path) is inside


def test_the_root_shares_everything() -> None:
    assert Shared.of(["/"]).holds("/any/where")
    assert not Shared.of([]).holds("/any/where")


def test_what_hangs_together_is_the_innermost_mount() -> None:
    shared = Shared.of(["/models", "/models/nfs"])
    assert shared.group("/models/nfs/a") == "/models/nfs"
    assert shared.group("/models/a") == "/models"


def test_where_everything_is_shared_the_parent_directory_stands_for_the_mount() -> None:
    shared = Shared.of(["/"])
    assert shared.group("/nfs/team/a/") == "/nfs/team"
    assert shared.group("/a") == "/"


def test_a_mount_point_that_is_written_through_a_link_still_holds_what_is_in_it(
    tmp_path: Path,
) -> None:
    (tmp_path / "real" / "a").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    shared = Shared.of([str(tmp_path / "link")])
    assert not leads_outside(str(tmp_path / "real" / "a"), shared)
    assert leads_outside(str(tmp_path / "other"), shared)


LOCAL = MountTable({"/": "ext4"})


def place(path: Path) -> Place:
    status = path.stat()
    return Place(str(path), status.st_dev, status.st_ino)


def test_a_missing_path_is_watched_for_in_the_deepest_directory_there_is(tmp_path: Path) -> None:
    found = spots(str(tmp_path / "not" / "there"), LOCAL)
    assert found.places == {place(tmp_path)}
    assert found.concerns == {str(tmp_path / "not")}


def test_a_directory_is_watched_with_its_parent_so_that_a_replacement_is_seen(
    tmp_path: Path,
) -> None:
    adapter = tmp_path / "a"
    adapter.mkdir()
    found = spots(f"{adapter}/", LOCAL)
    assert found.places == {place(tmp_path), place(adapter)}
    assert found.concerns == {str(adapter)}


def test_each_link_on_the_road_is_watched_where_it_lies(tmp_path: Path) -> None:
    target = tmp_path / "versions" / "1"
    (target / "a").mkdir(parents=True)
    (tmp_path / "current").symlink_to("versions/1")
    found = spots(str(tmp_path / "current" / "a"), LOCAL)
    assert found.places == {place(tmp_path), place(target), place(target / "a")}
    assert found.concerns == {str(tmp_path / "current"), str(target / "a")}


def test_a_directory_that_took_the_place_of_another_is_another_place(tmp_path: Path) -> None:
    adapter = tmp_path / "a"
    adapter.mkdir()
    before = spots(str(adapter), LOCAL)
    adapter.rename(tmp_path / "old")
    adapter.mkdir()
    assert spots(str(adapter), LOCAL) != before


def test_network_file_systems_are_not_watched(tmp_path: Path) -> None:
    table = MountTable({"/": "ext4", str(tmp_path): "nfs4"})
    assert spots(str(tmp_path / "missing"), table).places == set()
