"""Which files are weights, and whether each is complete by its own header.

That SGLang really reads these files is tested against the real one elsewhere.
"""

import io
import os
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.agent import weights
from sidecar.agent.weights import shortfall, weights_of
from tests.agent.directories import safetensors

Lack = Callable[..., str | None]


@pytest.fixture
def lack(tmp_path: Path) -> Lack:
    """What a file of these bytes lacks."""
    return lambda content, name="a.safetensors", moving=False: _lack(
        tmp_path, content, name, moving
    )


def _lack(directory: Path, content: bytes, name: str, moving: bool = False) -> str | None:
    (directory / name).write_bytes(content)
    fd = os.open(directory / name, os.O_RDONLY)
    try:
        return shortfall(fd, name, len(content), moving=moving)
    finally:
        os.close(fd)


def archive(comment: bytes = b"") -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        file.writestr("archive/data.pkl", b"\x80\x02}.")
        file.writestr("archive/data/0", bytes(100))
        file.comment = comment
    return stream.getvalue()


def archive64() -> bytes:
    """An archive with zip64 records, as torch.save writes them always."""
    plain = archive()
    end = len(plain) - 22
    count, size, offset = struct.unpack_from("<HII", plain, end + 10)
    record = struct.pack("<4sQHHIIQQQQ", b"PK\6\6", 44, 798, 45, 0, 0, count, count, size, offset)
    locator = struct.pack("<4sIQI", b"PK\6\7", 0, end, 1)
    return plain[:end] + record + locator + plain[end:]


@pytest.mark.parametrize(
    ("names", "read"),
    [
        pytest.param("b.safetensors a.safetensors", "a.safetensors b.safetensors", id="all"),
        pytest.param("a.bin a.safetensors a.pt", "a.safetensors", id="safetensors come first"),
        pytest.param("a.pt a.bin", "a.bin", id="then .bin"),
        pytest.param("a.pt README.md", "a.pt", id="then .pt"),
        pytest.param(".a.safetensors a.safetensors.tmp", "", id="neither hidden nor .tmp"),
        pytest.param("A.SAFETENSORS", "", id="a glob minds the case"),
        pytest.param("training_args.bin a.bin optimizer.bin", "a.bin", id="no training state"),
        pytest.param("training_args.bin a.pt", "", id="the first suffix that matches decides"),
    ],
)
def test_the_files_are_those_that_sglang_would_read(names: str, read: str) -> None:
    assert weights_of(names.split()) == tuple(read.split())


def test_a_whole_safetensors_file_lacks_nothing(lack: Lack) -> None:
    assert lack(safetensors()) is None
    assert lack(safetensors(b"")) is None


@pytest.mark.field(121)
def test_a_safetensors_file_cut_anywhere_lacks_something(lack: Lack) -> None:
    whole = safetensors()
    for length in range(len(whole)):
        assert lack(whole[:length]), f"cut at {length}"


def test_the_sentence_says_how_long_it_should_be_and_is(lack: Lack) -> None:
    whole = safetensors()
    said = f"its header says {len(whole)} bytes, it has {len(whole) - 1}"
    assert lack(whole[:-1]) == said
    assert lack(whole[:20]) == f"its header says at least {len(whole) - 64} bytes, it has 20"


def test_while_it_grows_the_sentence_stays_the_same(lack: Lack) -> None:
    whole = safetensors()
    assert lack(whole[:-1], moving=True) == lack(whole[:-9], moving=True)


def test_a_file_longer_than_its_header_says_is_not_whole(lack: Lack) -> None:
    assert lack(safetensors() + b"x")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "empty"),
        (bytes(4096), "does not begin with the header"),
        (b"\xff" * 100, "does not begin with the header"),
        (struct.pack("<Q", 100_000_001) + bytes(100), "does not begin with the header"),
        (struct.pack("<Q", 4) + b"null", "not the JSON"),
        (struct.pack("<Q", 4) + b"{{{{", "not the JSON"),
        (struct.pack("<Q", 100_000) + b"[" * 100_000, "not the JSON"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "Git LFS"),
    ],
)
def test_what_is_no_safetensors_file_is_named(lack: Lack, content: bytes, said: str) -> None:
    assert said in (lack(content) or "")


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param({"data_offsets": "0"}, id="no list"),
        pytest.param({"data_offsets": [0]}, id="too short"),
        pytest.param({"data_offsets": [-5, None, "x"]}, id="rubbish"),
        pytest.param({"data_offsets": []}, id="empty"),
        pytest.param([], id="no object"),
    ],
)
def test_odd_entries_of_a_header_do_not_matter_if_the_others_fill_the_file(
    lack: Lack, entry: object
) -> None:
    assert lack(safetensors(odd=entry)) is None


def test_a_header_too_long_to_parse_is_not_held_against_a_file(
    lack: Lack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights, "READABLE", 10)
    assert lack(safetensors() + b"longer than it says") is None
    assert lack(safetensors()[:20])


@pytest.mark.parametrize("name", ["a.bin", "a.pt"])
@pytest.mark.parametrize(
    "whole", [archive(), archive64(), archive(b"a comment")], ids=["zip", "zip64", "comment"]
)
def test_an_archive_is_whole_when_its_directory_is_at_its_end(
    lack: Lack, name: str, whole: bytes
) -> None:
    assert lack(whole, name) is None
    for length in range(1, len(whole)):
        assert lack(whole[:length], name), f"cut at {length}"
    assert lack(whole + b"x", name)


def test_an_archive_with_a_piece_missing_in_the_middle_is_not_whole(lack: Lack) -> None:
    for whole in (archive(), archive64()):
        assert lack(whole[:40] + whole[41:], "a.bin")


@pytest.mark.parametrize("whole", [archive(), archive64()], ids=["zip", "zip64"])
def test_an_archive_whose_end_speaks_of_another_directory_is_not_whole(
    lack: Lack, whole: bytes
) -> None:
    directory = whole.index(b"PK\1\2")
    assert lack(whole[:directory] + b"\0" + whole[directory + 1 :], "a.bin")
    length = whole.rindex(b"PK\5\6") + 12 if b"PK\6\6" not in whole else whole.index(b"PK\6\6") + 40
    assert lack(whole[:length] + b"\1" + whole[length + 1 :], "a.bin")


def test_an_old_pickle_tells_nothing_about_its_length_and_passes(lack: Lack) -> None:
    assert lack(b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.", "a.bin") is None
    assert lack(b"", "a.bin")
    assert lack(bytes(100), "a.bin")


@settings(deadline=None)
@given(st.binary(max_size=300), st.sampled_from(["a.safetensors", "a.bin"]), st.booleans())
def test_no_bytes_make_the_check_raise(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, name: str, zipped: bool
) -> None:
    if zipped:
        content = (
            b"PK\3\4" + content + b"PK\6\7" + content[:16].ljust(16) + b"PK\5\6" + content[:20]
        )
    _lack(tmp_path_factory.getbasetemp(), content, name)


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_no_header_makes_the_check_raise(
    tmp_path_factory: pytest.TempPathFactory, header: bytes
) -> None:
    content = struct.pack("<Q", len(header)) + header
    _lack(tmp_path_factory.getbasetemp(), content, "a.safetensors")
