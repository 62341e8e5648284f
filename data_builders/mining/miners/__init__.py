"""The miners, one file a format. This list is the registry."""

from __future__ import annotations

from data_builders.mining.facts import Miner
from data_builders.mining.miners.azure_pipelines import AzurePipelinesMiner
from data_builders.mining.miners.cargo import CargoMiner
from data_builders.mining.miners.circleci import CircleCiMiner
from data_builders.mining.miners.command_names import (
    CargoCommandsMiner,
    PackageCommandsMiner,
    PythonCommandsMiner,
)
from data_builders.mining.miners.config_settings import JsonConfigMiner, TomlConfigMiner, YamlConfigMiner
from data_builders.mining.miners.defaults_go import GoDefaultsMiner
from data_builders.mining.miners.defaults_python import PythonDefaultsMiner
from data_builders.mining.miners.defaults_rust import RustDefaultsMiner
from data_builders.mining.miners.defaults_script import ScriptDefaultsMiner
from data_builders.mining.miners.dockerfile import DockerfileMiner
from data_builders.mining.miners.file_presence import FilePresenceMiner
from data_builders.mining.miners.github_actions import GithubActionsMiner
from data_builders.mining.miners.gitlab_ci import GitlabCiMiner
from data_builders.mining.miners.go_mod import GoModMiner
from data_builders.mining.miners.package_json import PackageJsonMiner
from data_builders.mining.miners.pre_commit import PreCommitMiner
from data_builders.mining.miners.pyproject import PyprojectMiner
from data_builders.mining.miners.requirements_txt import RequirementsMiner
from data_builders.mining.miners.setup_cfg import SetupCfgMiner
from data_builders.mining.miners.toolchain_files import RustToolchainMiner, VersionFileMiner

MINERS: tuple[Miner, ...] = (
    PyprojectMiner(),
    RequirementsMiner(),
    SetupCfgMiner(),
    PackageJsonMiner(),
    CargoMiner(),
    GoModMiner(),
    RustToolchainMiner(),
    VersionFileMiner(),
    DockerfileMiner(),
    GithubActionsMiner(),
    GitlabCiMiner(),
    CircleCiMiner(),
    AzurePipelinesMiner(),
    PreCommitMiner(),
    TomlConfigMiner(),
    YamlConfigMiner(),
    JsonConfigMiner(),
    PythonDefaultsMiner(),
    RustDefaultsMiner(),
    ScriptDefaultsMiner(),
    GoDefaultsMiner(),
    PackageCommandsMiner(),
    PythonCommandsMiner(),
    CargoCommandsMiner(),
    FilePresenceMiner(),
)
