"""requirements*.lock: they satisfy pyproject.toml on every platform, and users get no tools and no pre-releases."""

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
USERS, CUDA, DEV = "requirements.lock", "requirements-cuda.lock", "requirements-dev.lock"
DOCS = "requirements-docs.lock"
LINUX = {"sys_platform": "linux", "platform_system": "Linux"}
MAC = {"sys_platform": "darwin", "platform_system": "Darwin"}


def pins(lock: str) -> list[Requirement]:
    lines = (ROOT / lock).read_text(encoding="utf-8").splitlines()
    return [Requirement(line) for line in lines if line[0] not in "#-"]


def version_of(pin: Requirement) -> Version:
    (specifier,) = pin.specifier
    assert specifier.operator == "=="
    return Version(specifier.version)


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
@pytest.mark.parametrize(
    "machine", [LINUX | {"platform_machine": "x86_64"}, LINUX | {"platform_machine": "aarch64"}, MAC], ids=str
)
def test_every_dependency_is_pinned_once_within_its_bounds(python: str, machine: dict[str, str]) -> None:
    environment = {
        "platform_machine": "arm64",
        **machine,
        "python_version": python,
        "python_full_version": f"{python}.0",
    }
    chosen: dict[str, Version] = {}
    for pin in [*pins(USERS), *pins(DEV), *pins(DOCS)]:
        if pin.marker is None or pin.marker.evaluate(environment):
            name = canonicalize_name(pin.name)
            assert name not in chosen
            chosen[name] = version_of(pin)
    requirements = [*PROJECT["dependencies"], *EXTRAS["serve"], *EXTRAS["cluster"], *EXTRAS["dev"], *EXTRAS["docs"]]
    for requirement in map(Requirement, requirements):
        assert chosen[canonicalize_name(requirement.name)] in requirement.specifier, requirement


def test_users_get_no_tools_of_development_and_no_cuda() -> None:
    users = {pin.name for pin in pins(USERS)}
    shared = {Requirement(text).name for text in (*EXTRAS["serve"], *EXTRAS["cluster"])}
    tools = {Requirement(text).name for text in (*EXTRAS["dev"], *EXTRAS["docs"])} - shared
    assert "pytest" in tools
    assert not users & tools
    assert not [name for name in users if name.startswith(("nvidia", "cuda", "triton"))]


def test_libraries_of_cuda_are_constraints_of_linux_alone() -> None:
    libraries = pins(CUDA)
    assert libraries
    for pin in libraries:
        assert pin.marker is not None
        assert not pin.marker.evaluate(MAC), pin
    assert f"--constraint {CUDA}" in (ROOT / USERS).read_text(encoding="utf-8").splitlines()


def test_pre_releases_are_those_that_have_no_release() -> None:
    """OpenTelemetry's exporters and conventions are published as betas alone."""
    early = {pin.name for lock in (USERS, CUDA, DEV, DOCS) for pin in pins(lock) if version_of(pin).is_prerelease}
    assert {name for name in early if not name.startswith("opentelemetry-")} == set()
