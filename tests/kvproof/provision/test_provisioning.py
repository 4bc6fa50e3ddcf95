"""Provisioning against a small package index in a folder: nothing here needs the network
once the focused environment is in the user's own cache, which two of the tests use."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import signal
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from kvproof.engines.vllm import download as download_module
from kvproof.engines.vllm import environment as environment_module
from kvproof.engines.vllm import release as release_module
from kvproof.engines.vllm.engine import provision_checkout
from kvproof.engines.vllm.environment import engine_python
from kvproof.engines.vllm.release import list_provisioned, release_source, remove_provisioned
from kvproof.errors import CouldNotRun
from kvproof.provision.finder import finder_in
from kvproof.provision.indexes import (
    PYPI,
    Indexes,
    configured_indexes,
    parse_pip_settings,
    uv_settings_as_pip_options,
)

COORDINATOR = "vllm/v1/hisparse/coordinator.py"
FILES = {
    "vllm/__init__.py": "",
    "vllm/v1/core/block_pool.py": "POOL = 1\n",
    COORDINATOR: "COORDINATOR = 1\n",
    "tests/v1/core/test_prefix_caching.py": "",
    "csrc/kernel.cu": "",
}


@dataclass(frozen=True, slots=True)
class Index:
    """A package index in a folder, and the source distributions that it lists."""

    folder: Path

    @property
    def url(self) -> str:
        return self.folder.as_uri()

    def add(self, version: str, files: Mapping[str, str] = FILES, digest: str = "") -> Path:
        root = f"vllm-{version}"
        return self.add_archive(version, {f"{root}/{n}": t for n, t in files.items()}, digest)

    def add_archive(self, version: str, members: Mapping[str, str], digest: str = "") -> Path:
        archive = self.folder / "vllm" / f"vllm-{version}.tar.gz"
        archive.parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(archive, "w:gz") as tar:
            for name, text in members.items():
                member = tarfile.TarInfo(name)
                member.size = len(text.encode())
                tar.addfile(member, io.BytesIO(text.encode()))
        digest = digest or hashlib.sha256(archive.read_bytes()).hexdigest()
        with (self.folder / "vllm" / "index.html").open("a") as page:
            page.write(f'<a href="{archive.name}#sha256={digest}">{archive.name}</a>\n')
        return archive


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KVPROOF_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path) -> Index:
    """The only index that is configured, for this process and its children."""
    for name in os.environ:
        if name.startswith(("PIP_", "UV_")):
            monkeypatch.delenv(name)
    made = Index(tmp_path / "index")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", made.url)
    monkeypatch.setattr(download_module, "PAUSE_SECONDS", 0.0)
    return made


def leftovers(cache: Path) -> list[str]:
    """What is in the cache besides whole releases and lock files."""
    whole = {release.version for release in list_provisioned()}
    folder = cache / "sources"
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    return [name for name in names if not name.endswith(".lock") and name not in whole]


SLOW_PROVISIONING = """
import sys, time
from kvproof.engines.vllm import download, release
write = download._write
def slow_write(target, content):
    write(target, content)
    print("wrote", target, flush=True)
    time.sleep(float(sys.argv[2]))
download._write = slow_write
print("source", release.release_source(sys.argv[1]), flush=True)
"""


def start_provisioning(version: str, seconds_per_file: float) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", SLOW_PROVISIONING, version, str(seconds_per_file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_release_is_unpacked_without_what_is_not_python(index: Index) -> None:
    index.add("0.33.0")
    source = release_source("0.33.0")
    assert (source / COORDINATOR).read_text() == "COORDINATOR = 1\n"
    assert (source / "tests/v1/core/test_prefix_caching.py").exists()
    assert not (source / "csrc").exists()


def test_a_second_use_touches_no_network(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    index.add("0.33.0")
    source = release_source("0.33.0")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setattr(release_module, "_fetch", lambda *_: pytest.fail("fetched again"))
    assert release_source("0.33.0") == source


def test_a_read_only_cache_is_enough_for_a_second_use(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.add("0.33.0")
    source = release_source("0.33.0")
    monkeypatch.setattr("kvproof.provision.cache.FileLock", lambda *_: pytest.fail("locked"))
    assert release_source("0.33.0") == source


def test_provisioning_killed_while_unpacking_leaves_nothing_half_made(
    index: Index, cache: Path
) -> None:
    index.add("0.33.0")
    child = start_provisioning("0.33.0", seconds_per_file=60)
    assert child.stdout is not None
    assert child.stdout.readline().startswith("wrote")
    child.send_signal(signal.SIGKILL)
    child.communicate()
    assert list_provisioned() == ()
    assert (release_source("0.33.0") / COORDINATOR).exists()
    assert leftovers(cache) == []


def test_of_two_provisionings_at_once_one_works_and_the_other_waits(
    index: Index, cache: Path
) -> None:
    index.add("0.33.0")
    children = [start_provisioning("0.33.0", seconds_per_file=0.3) for _ in range(2)]
    outputs = [child.communicate()[0].splitlines() for child in children]
    assert [lines[-1] for lines in outputs] == [f"source {cache}/sources/0.33.0"] * 2
    assert sorted(len(lines) for lines in outputs) == [1, 1 + 4]  # four Python files, written once
    assert leftovers(cache) == []


def test_a_full_disk_gives_one_line_and_leaves_nothing(
    index: Index, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.add("0.33.0")
    monkeypatch.setattr(download_module, "_write", no_space_left)
    with pytest.raises(CouldNotRun, match=r"the disk that holds .* is full; free some space"):
        release_source("0.33.0")
    assert leftovers(cache) == []


def no_space_left(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_the_next_run_works_after_a_full_disk(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.add("0.33.0")
    with monkeypatch.context() as full:
        full.setattr(download_module, "_write", no_space_left)
        with pytest.raises(CouldNotRun):
            release_source("0.33.0")
    assert (release_source("0.33.0") / COORDINATOR).exists()


def test_a_cache_folder_that_cannot_be_written_is_named(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("KVPROOF_CACHE_DIR", str(tmp_path / "file" / "cache"))
    with pytest.raises(CouldNotRun, match=r"cannot write to the cache folder .*KVPROOF_CACHE_DIR"):
        release_source("0.33.0")


def test_an_unknown_version_lists_the_usable_ones(index: Index, cache: Path) -> None:
    for version in ("0.29.0", "0.30.0", "0.33.0"):
        index.add(version)
    with pytest.raises(CouldNotRun, match=r"vllm 0\.34\.0; usable versions: 0\.30\.0, 0\.33\.0"):
        release_source("0.34.0")
    assert leftovers(cache) == []


def test_a_version_before_hisparse_is_refused_without_a_download(index: Index) -> None:
    index.add("0.29.0").unlink()
    with pytest.raises(CouldNotRun) as refusal:
        release_source("0.29.0")
    assert str(refusal.value) == "vllm 0.29.0 has no HiSparse; kvproof needs 0.30.0 or later"


def test_a_later_version_without_hisparse_is_refused(index: Index, cache: Path) -> None:
    index.add("0.40.0", {name: text for name, text in FILES.items() if name != COORDINATOR})
    with pytest.raises(CouldNotRun, match=r"vllm 0\.40\.0 has no HiSparse"):
        release_source("0.40.0")
    assert leftovers(cache) == []


@pytest.mark.parametrize("version", ["latest", "../../elsewhere", "", "0.33.0; rm"])
def test_what_is_no_version_is_refused(index: Index, version: str) -> None:
    with pytest.raises(CouldNotRun, match="is not a version"):
        release_source(version)


def test_a_wrong_hash_is_refused(index: Index, cache: Path) -> None:
    index.add("0.33.0", digest="0" * 64)
    with pytest.raises(CouldNotRun, match="does not have the hash that the package index gives"):
        release_source("0.33.0")
    assert leftovers(cache) == []


def test_half_an_archive_is_refused(index: Index, cache: Path) -> None:
    archive = index.add("0.33.0")
    content = archive.read_bytes()[:-40]
    archive.write_bytes(content)
    (index.folder / "vllm" / "index.html").write_text(f'<a href="{archive.name}">sdist</a>')
    with pytest.raises(CouldNotRun, match="is not a whole archive"):
        release_source("0.33.0")
    assert leftovers(cache) == []


def test_no_network_is_said_in_one_line(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://user:secret@127.0.0.1:9/simple")
    with pytest.raises(CouldNotRun, match="check the network") as refusal:
        release_source("0.33.0")
    assert "127.0.0.1:9" in str(refusal.value)
    assert "secret" not in str(refusal.value)


def test_names_in_an_archive_cannot_lead_outside(index: Index, cache: Path) -> None:
    inside = {f"vllm-0.33.0/{name}": text for name, text in FILES.items()}
    outside = {"vllm-0.33.0/vllm/../../../../up.py": "", "/vllm/abs.py": "", "x/../vllm/dot.py": ""}
    index.add_archive("0.33.0", inside | outside)
    release_source("0.33.0")
    unpacked = {path.name for path in cache.parent.rglob("*.py")}
    assert unpacked == {Path(name).name for name in FILES if name.endswith(".py")}


def test_links_in_an_archive_are_left_out(index: Index, tmp_path: Path) -> None:
    archive = tmp_path / "links.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        for name, kind in (("a/vllm/sym.py", tarfile.SYMTYPE), ("a/vllm/hard.py", tarfile.LNKTYPE)):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, "/etc/passwd"
            tar.addfile(member)
    download_module.extract(archive, tmp_path / "out", lambda *_: None)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("damage", ["changed", "missing", "no manifest"])
def test_a_damaged_entry_is_built_again_with_a_notice(
    index: Index, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    index.add("0.33.0")
    source = release_source("0.33.0")
    match damage:
        case "changed":
            (source / COORDINATOR).write_text("COORDINATOR = 2\n")
        case "missing":
            (source / COORDINATOR).unlink()
        case _:
            (source / "kvproof-manifest.json").write_text("{")
    assert (release_source("0.33.0") / COORDINATOR).read_text() == "COORDINATOR = 1\n"
    assert "the cached copy of vllm 0.33.0 is damaged" in capsys.readouterr().err


def test_a_damaged_entry_is_never_used_when_it_cannot_be_built_again(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.add("0.33.0")
    (release_source("0.33.0") / COORDINATOR).write_text("COORDINATOR = 2\n")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    with pytest.raises(CouldNotRun, match="check the network"):
        release_source("0.33.0")


def test_progress_goes_to_standard_error_only(
    index: Index, capsys: pytest.CaptureFixture[str]
) -> None:
    index.add("0.33.0")
    release_source("0.33.0")
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines() == [
        "kvproof: provisioning vllm 0.33.0 ...",
        "kvproof: provisioning vllm 0.33.0: done",
    ]


def test_provisioned_releases_are_listed_in_order_and_can_be_removed(
    index: Index, cache: Path
) -> None:
    for version in ("0.100.0", "0.33.0"):
        index.add(version)
        release_source(version)
    assert [release.version for release in list_provisioned()] == ["0.33.0", "0.100.0"]
    remove_provisioned("0.33.0")
    assert [release.version for release in list_provisioned()] == ["0.100.0"]
    with pytest.raises(CouldNotRun, match=r"0\.33\.0 is not in the cache.*: 0\.100\.0"):
        remove_provisioned("0.33.0")


def test_a_checkout_is_used_where_it_is(tmp_path: Path) -> None:
    coordinator = tmp_path / COORDINATOR
    coordinator.parent.mkdir(parents=True)
    coordinator.touch()
    engine = provision_checkout(tmp_path, "focused")
    assert engine.source == tmp_path
    assert engine.name == f"vllm@{tmp_path}"


def test_a_checkout_without_hisparse_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CouldNotRun, match=f"holds no {COORDINATOR}"):
        provision_checkout(tmp_path, "focused")
    with pytest.raises(CouldNotRun, match="is not a folder"):
        provision_checkout(tmp_path / "nowhere", "focused")


def test_the_focused_environment_has_its_packages_and_no_torch() -> None:
    python = engine_python("focused")
    subprocess.run([python, "-c", "import msgspec, zmq, cbor2, typing_extensions"], check=True)
    torch = subprocess.run([python, "-c", "import torch"], capture_output=True, check=False)
    assert torch.returncode != 0


def test_an_environment_whose_interpreter_is_gone_is_built_again(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment_module, "_install", lambda *_: None)
    python = engine_python("focused")
    python.unlink()
    python.symlink_to("/nowhere/python")
    assert engine_python("focused") == python
    assert python.exists()


def test_packages_that_cannot_be_installed_are_one_line(
    index: Index, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(CouldNotRun, match=r"No matching distribution found for msgspec==") as error:
        engine_python("focused")
    assert "\n" not in str(error.value)
    assert [p.name for p in (cache / "environments").iterdir() if p.suffix != ".lock"] == []


def test_a_full_disk_under_pip_is_told_as_such() -> None:
    error = environment_module._install_failed(["ERROR: [Errno 28] No space left on device"])
    assert isinstance(error, OSError)
    assert error.errno == errno.ENOSPC


def test_settings_of_pip_are_read_with_the_strongest_last() -> None:
    listing = "\n".join(
        [
            ":env:.cert='/env.pem'",
            "download.index-url='https://download/simple'",
            "freeze.index-url='https://other/simple'",
            "global.cert='/global.pem'",
            "global.extra-index-url='https://one\\nhttps://two'",
            "global.index-url='https://global/simple'",
        ]
    )
    assert parse_pip_settings(listing) == {
        "cert": "/env.pem",
        "index-url": "https://download/simple",
        "extra-index-url": "https://one\nhttps://two",
    }


def test_without_any_configuration_the_index_is_pypi(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PIP_INDEX_URL")
    assert configured_indexes() == Indexes(index_urls=(PYPI,))


def test_variables_of_uv_and_pip_are_merged(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "https://pip/simple")
    monkeypatch.setenv("PIP_TRUSTED_HOST", "pip")
    uv = {
        "UV_DEFAULT_INDEX": "main=https://uv/simple",
        "UV_INDEX": "corp=https://corp/simple https://other/simple",
        "UV_FIND_LINKS": f"{tmp_path},https://links/page,/not/there",
    }
    found = configured_indexes(uv)
    assert found.index_urls == (
        "https://uv/simple",
        "https://corp/simple",
        "https://other/simple",
        "https://pip/simple",
    )
    assert found.find_links == (str(tmp_path), "https://links/page")
    assert found.trusted_hosts == ("pip",)


def test_no_index_leaves_only_the_links(index: Index) -> None:
    found = configured_indexes({"UV_NO_INDEX": "1"})
    assert found.index_urls == ()
    assert finder_in(found).sources == []


def test_variables_of_uv_reach_pip_as_options() -> None:
    uv = {"UV_INDEX_URL": "https://uv/simple", "UV_FIND_LINKS": "/links", "UV_NO_INDEX": "0"}
    expected = ["--index-url", "https://uv/simple", "--find-links", "/links"]
    assert uv_settings_as_pip_options(uv) == expected
