from pathlib import Path

from tests.rig.volume import AtomicVolume


def names(folder: Path) -> set[str]:
    return {entry.name for entry in folder.iterdir() if not entry.name.startswith("..2")}


def test_files_are_links_through_data(tmp_path):
    AtomicVolume(tmp_path / "v").write({"token": "one", "ca.crt": b"pem"})

    assert (tmp_path / "v" / "token").readlink() == Path("..data/token")
    assert (tmp_path / "v" / "token").read_text() == "one"
    assert names(tmp_path / "v") == {"..data", "token", "ca.crt"}


def test_a_write_swaps_all_files_and_leaves_the_links_alone(tmp_path):
    volume = AtomicVolume(tmp_path)
    volume.write({"token": "one", "old": "x"})
    link = (tmp_path / "token").lstat().st_ino
    first = (tmp_path / "..data").readlink()

    volume.write({"token": "two", "new": "y"})

    assert (tmp_path / "token").lstat().st_ino == link
    assert (tmp_path / "token").read_text() == "two"
    assert names(tmp_path) == {"..data", "token", "new"}
    assert not (tmp_path / first).exists()
