"""One look at a directory: its state, its sentence, its signature.

Excluded: whether it has been still for long enough (test_paths), and the headers of weights (test_weights).
"""

import errno
import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.agent import files
from sidecar.agent.files import Contents, File
from sidecar.agent.mounts import Shared
from sidecar.agent.pathview import AdapterFacts, PathState, PathView
from sidecar.agent.tensors import TensorFacts
from tests.agent.directories import config_bytes, later, safetensors, touch, write

EVERYTHING = Shared.of(["/"])
Look = Callable[..., PathView]


def look(path: Path | str, shared: Shared = EVERYTHING, **more: Any) -> PathView:
    return files.inspect(str(path), shared, later(), **more)


def said(path: Path | str, shared: Shared = EVERYTHING) -> tuple[PathState, str]:
    view = look(path, shared)
    return view.state, view.text


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    return write(tmp_path / "a")


def test_a_whole_adapter_is_whole(adapter: Path) -> None:
    view = look(adapter)
    assert view.state is PathState.WHOLE
    assert view.config == AdapterFacts(8, ("q_proj", "v_proj"), "LORA", False, 16.0, TensorFacts())
    assert view.bytes == sum(file.stat().st_size for file in adapter.iterdir())
    assert len(view.signature) == 24
    assert view.changed_at == max(file.stat().st_ctime for file in adapter.iterdir())
    assert look(f"{adapter}/").state is PathState.WHOLE


@pytest.mark.field(23)
@pytest.mark.parametrize(
    ("path", "words"),
    [
        pytest.param("evil/repo", "not absolute", id="a repository on the Hub"),
        pytest.param("", "not absolute", id="empty"),
        pytest.param("/models/../etc", "'..'", id="dots"),
        pytest.param("/models//a", "/models/a", id="two slashes"),
        pytest.param("//models/a", "/models/a", id="two slashes at the beginning"),
        pytest.param("/models/./a", "/models/a", id="a dot"),
        pytest.param("/models/\0", "NUL", id="NUL"),
        pytest.param("/models/\ud800", "no file name", id="half a character"),
        pytest.param("/models/a*", "'*'", id="star"),
        pytest.param("/models/a?", "'?'", id="question mark"),
        pytest.param("/models/[a]", "'['", id="brackets"),
        pytest.param("/" + "a" * 300, "too long", id="a name too long"),
        pytest.param("/" + "a/" * 3000 + "a", "too long", id="a path too long"),
    ],
)
def test_a_path_that_can_never_work_is_invalid_and_says_why(path: str, words: str) -> None:
    state, text = said(path)
    assert state is PathState.INVALID
    assert words in text


@pytest.mark.parametrize("name", ["with space", "a]", "a[", "ünïcode", "new\nline"])
def test_odd_names_that_sglang_can_open_are_fine(tmp_path: Path, name: str) -> None:
    assert look(write(tmp_path / name)).state is PathState.WHOLE


def test_a_missing_directory_is_waited_for(tmp_path: Path) -> None:
    assert said(tmp_path / "a" / "b") == (PathState.MISSING, "it does not exist")


def test_a_link_to_nothing_is_waited_for(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    assert said(tmp_path / "a") == (PathState.MISSING, "it is a link to nothing")


def test_a_file_is_no_adapter(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "fifo")
    assert said(tmp_path / "file") == (PathState.INVALID, "it is not a directory")
    assert said(tmp_path / "fifo") == (PathState.INVALID, "it is not a directory")
    assert look(tmp_path / "file" / "a").state is PathState.INVALID


def test_a_path_outside_of_the_shared_mounts_is_told_so_without_a_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os.path, "realpath", lambda path: pytest.fail("looked"))
    state, text = said("/etc", Shared.of(["/models", "/adapters"]))
    assert state is PathState.NOT_SHARED
    assert "/adapters, /models" in text


@pytest.mark.field(44)
def test_a_link_out_of_the_shared_mounts_is_not_followed(tmp_path: Path, adapter: Path) -> None:
    mount = tmp_path / "mount"
    mount.mkdir()
    (mount / "a").symlink_to(adapter)
    assert look(mount / "a", Shared.of([str(mount)])).state is PathState.NOT_SHARED
    assert look(mount / "a", Shared.of([str(tmp_path)])).state is PathState.WHOLE


def test_a_file_that_leads_out_of_the_shared_mounts_is_not_read(
    tmp_path: Path, adapter: Path
) -> None:
    weights = adapter / "adapter_model.safetensors"
    weights.rename(tmp_path / "elsewhere")
    weights.symlink_to(tmp_path / "elsewhere")
    state, text = said(adapter, Shared.of([str(adapter)]))
    assert state is PathState.NOT_SHARED
    assert "adapter_model.safetensors" in text


@pytest.mark.parametrize(
    ("content", "words"),
    [
        pytest.param({}, "no adapter_config.json", id="empty"),
        pytest.param(
            {"a.safetensors": safetensors()}, "no adapter_config.json", id="weights alone"
        ),
        pytest.param({"adapter_config.json": config_bytes()}, "no weights", id="config alone"),
        pytest.param(
            {"adapter_config.json": config_bytes(), ".a.safetensors": safetensors()},
            "no weights",
            id="hidden weights",
        ),
        pytest.param({"adapter_config.json": b""}, "not JSON", id="an empty config"),
        pytest.param({"adapter_config.json": config_bytes()[:-1]}, "not JSON", id="half a config"),
        pytest.param({"adapter_config.json": b"[" * 100_000}, "not JSON", id="a config too deep"),
        pytest.param(
            {"adapter_config.json": b"version https://git-lfs.github.com/spec/v1\n"},
            "Git LFS",
            id="a config that is an LFS pointer",
        ),
        pytest.param(
            {"adapter_config.json": config_bytes(), "a.safetensors": safetensors()[:-1]},
            "a.safetensors: its header says",
            id="truncated weights",
        ),
        pytest.param(
            {
                "adapter_config.json": config_bytes(),
                "1.safetensors": safetensors(),
                "2.safetensors": b"",
            },
            "2.safetensors: it is empty",
            id="one of two files",
        ),
    ],
)
def test_half_an_adapter_says_what_is_missing(
    tmp_path: Path, content: dict[str, bytes], words: str
) -> None:
    state, text = said(write(tmp_path / "a", content))
    assert state is PathState.PARTIAL
    assert words in text


def test_weights_still_on_their_way_are_told_without_their_present_length(
    tmp_path: Path,
) -> None:
    adapter = write(tmp_path / "a")
    weights = adapter / "adapter_model.safetensors"
    weights.write_bytes(safetensors()[:-1])
    view = files.inspect(str(adapter), EVERYTHING, weights.stat().st_mtime + 1)
    assert "still being written" in view.text


def test_a_link_to_weights_that_are_not_there_yet_is_named(adapter: Path) -> None:
    (adapter / "b.safetensors").symlink_to("../../blobs/b")
    assert said(adapter) == (PathState.PARTIAL, "b.safetensors is a link to nothing")


def test_weights_behind_links_are_followed_as_in_a_hub_cache(tmp_path: Path) -> None:
    blobs = write(tmp_path / "blobs", {"c": config_bytes(), "w": safetensors()})
    snapshot = tmp_path / "snapshots" / "a"
    snapshot.mkdir(parents=True)
    (snapshot / "adapter_config.json").symlink_to(blobs / "c")
    (snapshot / "adapter_model.safetensors").symlink_to("../../blobs/w")
    assert look(snapshot).state is PathState.WHOLE


def without(key: str) -> bytes:
    config = json.loads(config_bytes())
    del config[key]
    return json.dumps(config).encode()


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (without("target_modules"), "lacks target_modules"),
        (without("r"), "lacks r"),
        (without("lora_alpha"), "lacks lora_alpha"),
        (without("peft_type"), "lacks peft_type"),
        (b"{}", "lacks target_modules, r, lora_alpha, peft_type"),
        (b"[]", "not a JSON object"),
        (config_bytes(r="8"), "r that is not"),
        (config_bytes(r=True), "r that is not"),
        (config_bytes(r=0), "r that is not"),
        (config_bytes(lora_alpha=None), "lora_alpha that is not"),
        (config_bytes(lora_alpha=10**400), "lora_alpha that is not"),
        (config_bytes(lora_alpha=float("nan")), "lora_alpha that is not"),
        (config_bytes(target_modules={"q_proj": 1}), "target_modules that are not"),
        (config_bytes(target_modules=["q_proj", 1]), "target_modules that are not"),
        (config_bytes(target_modules=None), "target_modules that are not"),
        (config_bytes(peft_type=None), "peft_type that is not"),
        (config_bytes(padding="x" * 5_000_000), "larger than"),
    ],
)
def test_a_config_that_sglang_would_refuse_is_bad(adapter: Path, config: bytes, words: str) -> None:
    (adapter / "adapter_config.json").write_bytes(config)
    state, text = said(adapter)
    assert state is PathState.BAD
    assert words in text
    assert look(adapter).signature


def test_the_facts_are_kept_as_written(tmp_path: Path) -> None:
    adapter = write(tmp_path / "a", target_modules="all-linear", use_dora=True, lora_alpha=0.5)
    assert look(adapter).config == AdapterFacts(
        8, ("all-linear",), "LORA", True, 0.5, TensorFacts()
    )


@pytest.mark.parametrize(
    "name", ["adapter_config.json", "added_tokens.json", "adapter_model.safetensors", "b.bin"]
)
def test_a_fifo_that_sglang_would_hang_on_is_bad_and_does_not_hang_us(
    tmp_path: Path, name: str
) -> None:
    adapter = write(
        tmp_path / "a",
        {"adapter_config.json": config_bytes(), "a.safetensors": safetensors()},
    )
    if name.endswith(".bin"):
        (adapter / "a.safetensors").unlink()
    (adapter / name).unlink(missing_ok=True)
    os.mkfifo(adapter / name)
    assert said(adapter) == (PathState.BAD, f"{name} is not a regular file")


def test_a_fifo_that_takes_a_files_place_after_the_first_glance_does_not_hang_us(
    adapter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = files.find

    def find_then_swap(path: str, shared: Shared) -> files.Contents:
        found = find(path, shared)
        for file in found.files:
            Path(file.path).unlink()
            os.mkfifo(file.path)
        return found

    monkeypatch.setattr(files, "find", find_then_swap)
    assert look(adapter).state is PathState.BAD


def test_other_things_in_the_directory_do_not_matter(adapter: Path) -> None:
    before = look(adapter)
    os.mkfifo(adapter / "fifo")
    (adapter / "checkpoint-1.safetensors.d").mkdir()
    (adapter / "README.md").write_text("read me")
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind(str(adapter / "s"))
    assert look(adapter) == before


def test_a_name_of_any_bytes_makes_a_printable_sentence(tmp_path: Path) -> None:
    adapter = write(tmp_path / "a", {"adapter_config.json": config_bytes()})
    odd = os.fsencode(adapter) + b"/\xff\n" + b"x" * 200 + b".safetensors"
    Path(os.fsdecode(odd)).touch()
    state, text = said(adapter)
    assert state is PathState.PARTIAL
    assert text.isprintable()
    assert len(text.encode()) < 256


@pytest.mark.parametrize("code", ["EACCES", "EPERM", "EIO", "ESTALE", "ENOTCONN", "EMFILE"])
@pytest.mark.parametrize("call", ["scandir", "open", "stat", "realpath"])
def test_an_error_of_the_file_system_is_named(
    adapter: Path, monkeypatch: pytest.MonkeyPatch, code: str, call: str
) -> None:
    number = getattr(errno, code)

    def fails(path: object, *args: object, **kwargs: object) -> None:
        raise OSError(number, os.strerror(number), str(path))

    where: Any = {"realpath": os.path}.get(call, os)
    monkeypatch.setattr(where, call, fails)
    state, text = said(adapter)
    assert state is PathState.UNREADABLE
    assert code in text
    assert ("uid" in text) == (code in ("EACCES", "EPERM"))


@pytest.mark.field(123)
def test_who_lacks_permission_is_said_by_number(
    adapter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*args: object, **kwargs: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(adapter))

    monkeypatch.setattr(os, "scandir", refuses)
    monkeypatch.setattr(os, "geteuid", lambda: 65532)
    monkeypatch.setattr(os, "getegid", lambda: 65533)
    monkeypatch.setattr(os, "getgroups", lambda: [102, 103])
    assert said(adapter)[1] == (
        "a cannot be read: EACCES (Permission denied);"
        " the agent is uid 65532, gid 65533, groups 102,103"
    )


def test_a_file_removed_between_two_steps_is_waited_for(
    adapter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def vanished(path: str, *args: object, **kwargs: object) -> None:
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)

    monkeypatch.setattr(os, "open", vanished)
    assert look(adapter).state is PathState.PARTIAL


def test_a_look_at_files_known_to_be_whole_opens_none(
    adapter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = look(adapter)
    monkeypatch.setattr(os, "open", lambda *args: pytest.fail("opened"))
    assert look(adapter, last=before) is before


def test_a_look_at_files_that_have_changed_opens_them(adapter: Path) -> None:
    before = look(adapter)
    (adapter / "adapter_model.safetensors").write_bytes(b"rubbish")
    assert look(adapter, last=before).state is PathState.PARTIAL


def signature(path: Path) -> str:
    return files.signature(str(path), EVERYTHING)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda a: touch(a / "adapter_config.json"), id="a touch"),
        pytest.param(lambda a: touch(a / "adapter_model.safetensors"), id="touched weights"),
        pytest.param(lambda a: (a / "added_tokens.json").write_text("{}"), id="added tokens"),
        pytest.param(lambda a: (a / "b.safetensors").touch(), id="more weights"),
        pytest.param(
            lambda a: (a / "adapter_model.safetensors").rename(a / "b.safetensors"), id="a name"
        ),
        pytest.param(lambda a: (a / "adapter_config.json").unlink(), id="a removal"),
    ],
)
def test_the_signature_changes_with_what_the_engine_would_read(
    adapter: Path, change: Callable[[Path], object]
) -> None:
    before = signature(adapter)
    assert signature(adapter) == before == look(adapter).signature
    change(adapter)
    assert signature(adapter) != before


def test_a_copy_with_the_same_times_has_another_signature(adapter: Path) -> None:
    before, weights = signature(adapter), adapter / "adapter_model.safetensors"
    times = weights.stat()
    copy = adapter / "copy"
    copy.write_bytes(weights.read_bytes())
    copy.rename(weights)
    os.utime(weights, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert signature(adapter) != before


def test_the_swap_of_a_config_maps_data_changes_the_signature(tmp_path: Path) -> None:
    for version in ("..1", "..2"):
        write(tmp_path / "a" / version)
    (tmp_path / "a" / "..data").symlink_to("..1")
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        (tmp_path / "a" / name).symlink_to(f"..data/{name}")
    before = look(tmp_path / "a")
    (tmp_path / "a" / "..new").symlink_to("..2")
    (tmp_path / "a" / "..new").rename(tmp_path / "a" / "..data")
    after = look(tmp_path / "a")
    assert before.state is after.state is PathState.WHOLE
    assert before.signature != after.signature


def test_the_swap_of_a_link_above_changes_the_signature(tmp_path: Path) -> None:
    for version in ("1", "2"):
        write(tmp_path / version / "a")
    (tmp_path / "current").symlink_to("1")
    before = signature(tmp_path / "current" / "a")
    (tmp_path / "current").unlink()
    (tmp_path / "current").symlink_to("2")
    assert signature(tmp_path / "current" / "a") != before


def status(**changes: int) -> os.stat_result:
    fields = {"st_ino": 1, "st_size": 2, "st_mtime_ns": 3, "st_ctime_ns": 4, **changes}
    return SimpleNamespace(**fields)  # type: ignore[return-value]


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(Contents("/b", (File("n", "/a/n", status()),)), id="another directory"),
        pytest.param(Contents("/a", ()), id="no file"),
        pytest.param(Contents("/a", (File("m", "/a/n", status()),)), id="another name"),
        pytest.param(Contents("/a", (File("n", "/c/n", status()),)), id="a link elsewhere"),
        *(
            pytest.param(Contents("/a", (File("n", "/a/n", status(**{field: 9})),)), id=field)
            for field in ("st_ino", "st_size", "st_mtime_ns", "st_ctime_ns")
        ),
    ],
)
def test_each_single_difference_makes_another_signature(other: Contents) -> None:
    assert Contents("/a", (File("n", "/a/n", status()),)).signature != other.signature


def test_what_cannot_be_seen_has_no_signature(tmp_path: Path) -> None:
    assert signature(tmp_path / "missing") == ""


@settings(deadline=None)
@given(st.binary(max_size=200), st.binary(max_size=200))
def test_no_bytes_on_the_disk_make_a_look_raise(
    tmp_path_factory: pytest.TempPathFactory, config: bytes, weights: bytes
) -> None:
    directory = tmp_path_factory.getbasetemp() / "bytes"
    write(directory, {"adapter_config.json": config, "a.safetensors": weights})
    assert look(directory).state in (PathState.PARTIAL, PathState.BAD)


ODD: list[Any] = [None, True, -1, 8, 0.5, float("inf"), "", "x", [], ["a"], [1], [[]], {}, {"a": 1}]
KEYS = ("r", "lora_alpha", "target_modules", "peft_type", "use_dora")


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(KEYS), st.sampled_from(ODD)))
def test_no_json_makes_a_look_raise(
    tmp_path_factory: pytest.TempPathFactory, config: dict[str, Any]
) -> None:
    directory = tmp_path_factory.getbasetemp() / "json"
    write(directory, {"adapter_config.json": json.dumps(config).encode()})
    assert look(directory).state in (PathState.PARTIAL, PathState.BAD)


@settings(deadline=None)
@given(st.text(max_size=40), st.booleans())
def test_no_path_makes_a_look_raise(path: str, absolute: bool) -> None:
    view = look("/nowhere/" * absolute + path)
    assert view.state is not PathState.WHOLE
    view.text.encode()
