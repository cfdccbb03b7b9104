"""TensorFlow Serving in a container of this machine: `--target=tfserving`."""

import dataclasses
import ipaddress
import os
import pathlib
import shlex
from collections.abc import Mapping, Sequence

from absl import flags

from cloud.deployment import sample_records, served_model
from cloud.deployment.deployment import Deployment, ServerSettings
from cloud.deployment.target import DeployTarget
from cloud.remote_target import say
from cloud.target import Request
from cloud.tfserving.models_config import (
    LATEST,
    POLICIES,
    SPECIFIC,
    ServedVersions,
    batching_parameters,
    models_config,
    monitoring_config,
)
from tfps import byte_size
from tfps.errors import EXIT_OK, UserError
from tfps.storage.paths import is_cloud

GRPC_PORT, REST_PORT = 8500, 8501  # within the container
SHEBANG = "#!/bin/bash\n"
_FILES, _MODELS, _KEY = "/serving", "/models", "/credentials.json"
POLL_SECONDS = 30  # between two looks at the files
# What gives access to gs://: a key file or a person's login if there is one, else the machine's
# own account, which Google's machines tell of.
_CREDENTIALS = f"""\
key="${{GOOGLE_APPLICATION_CREDENTIALS:-$HOME/.config/gcloud/application_default_credentials.json}}"
credentials=()
if [ -f "$key" ]; then
  credentials=(
    --mount="type=bind,\\"source=$(realpath "$key")\\",target={_KEY},readonly"
    --env=GOOGLE_APPLICATION_CREDENTIALS={_KEY}
  )
fi
"""
_SCRIPT = "start.sh"
_PARTS = {"machine": "machine=type", "accelerator": "machine=accelerator"}
_NOT_HERE = {
    "machine": "the server runs on this machine",
    "accelerator": "add --gpus=all to the line of start.sh, and give an --image with -gpu",
    "service_account": "the server uses this machine's account, or the file that "
    "GOOGLE_APPLICATION_CREDENTIALS names",
    "labels": "containers are found by their --name",
}


def base_in_container(deployment: Deployment) -> str:
    base = deployment.model.base
    return base if is_cloud(base) else f"{_MODELS}/{deployment.name}"


def arguments(files: Sequence[str]) -> list[str]:
    flags = {
        "model_config_file": "models.config",
        "monitoring_config_file": "monitoring.config",
        "batching_parameters_file": "batching.config",
    }
    found = [f"--{flag}={_FILES}/{name}" for flag, name in flags.items() if name in files]
    if "batching.config" in files:
        found.append("--enable_batching=true")
    return [
        *found,
        f"--model_config_file_poll_wait_seconds={POLL_SECONDS}",
        "--allow_version_labels_for_unavailable_models=true",
        "--enable_model_warmup=true",
    ]


def script(
    deployment: Deployment, files: Sequence[str], address: str, ports: Mapping[int, int]
) -> str:
    """A script that starts the container with the files next to it, without rights."""
    own = _options(deployment, address, ports)
    lines = [*own, shlex.quote(deployment.image), *arguments(files)]
    return (
        SHEBANG + "# Starts TensorFlow Serving in the foreground; Ctrl-C ends it.\n"
        "set -eu\n"
        'here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"\n'
        + (_CREDENTIALS if is_cloud(deployment.model.base) else "")
        + " \\\n  ".join(["exec docker run", *lines])
        + "\n"
    )


def _options(deployment: Deployment, address: str, ports: Mapping[int, int]) -> list[str]:
    """Options of `docker run`, as the shell reads them."""
    base = deployment.model.base
    own = [
        f"--name={deployment.name}",
        "--rm",
        '--user="$(id -u):$(id -g)"',
        "--read-only",
        "--tmpfs=/tmp",
        "--cap-drop=ALL",
        "--security-opt=no-new-privileges",
    ]
    if deployment.cpus:
        own.append(f"--cpus={deployment.cpus}")
    if deployment.memory_bytes:
        own.append(f"--memory={deployment.memory_bytes}b")
    own += [shlex.quote(f"--publish={address}:{outer}:{inner}") for inner, outer in ports.items()]
    own.append(f'--mount="type=bind,\\"source=$here\\",target={_FILES},readonly"')
    if is_cloud(base):
        own.append('${credentials[@]+"${credentials[@]}"}')  # bash 3 takes none for unset
    else:
        own.append(f"--mount={shlex.quote(_mount(base, base_in_container(deployment)))}")
    return own


def _mount(source: str, target: str) -> str:
    """A mount as docker reads it: fields of CSV, of which a path may need quotes."""
    field = f"source={source}"
    if {",", '"'} & set(field):
        field = '"' + field.replace('"', '""') + '"'
    return f"type=bind,{field},target={target},readonly"


@dataclasses.dataclass(frozen=True)
class ServingSettings:
    """What TensorFlow Serving is started with, apart from the model."""

    output: str  # directory for the files; empty if they are only printed
    versions: ServedVersions
    address: str = "127.0.0.1"
    rest_port: int = REST_PORT
    grpc_port: int = GRPC_PORT

    def __post_init__(self) -> None:
        try:
            ipaddress.ip_address(self.address)
        except ValueError:
            raise UserError(
                f"--address={self.address}: write an IP address of this machine, such as 127.0.0.1"
            ) from None
        if self.rest_port == self.grpc_port:
            raise UserError(f"--rest_port and --grpc_port are both {self.rest_port}; change one")

    @property
    def host(self) -> str:
        """The address as it stands before a port."""
        return f"[{self.address}]" if ":" in self.address else self.address


def define_flags(values: flags.FlagValues) -> None:
    for name, text in {
        "output": "directory for its files.",
        "address": "of this machine's network, where its ports are opened (default: 127.0.0.1).",
    }.items():
        flags.DEFINE_string(name, None, f"TensorFlow Serving: {text}", flag_values=values)
    flags.DEFINE_enum(
        "version_policy",
        None,
        POLICIES,
        "TensorFlow Serving: which versions it has; default: latest, with --version specific.",
        flag_values=values,
    )
    flags.DEFINE_multi_string(
        "version_label",
        [],
        "TensorFlow Serving: a name of a version, NAME=version; any number.",
        flag_values=values,
    )
    for name, text in {
        "rest_port": "for requests over HTTP (default: 8501).",
        "grpc_port": "for requests over gRPC (default: 8500).",
    }.items():
        flags.DEFINE_integer(
            name,
            None,
            f"TensorFlow Serving: {text}",
            lower_bound=1,
            upper_bound=65535,
            flag_values=values,
        )


def from_flags(values: flags.FlagValues) -> "ServingTarget":
    policy = values.version_policy or (SPECIFIC if values.version else LATEST)
    given = {
        name: values[name].value
        for name in ("address", "rest_port", "grpc_port")
        if values[name].value is not None
    }
    versions = ServedVersions.parse(policy, values.version_label)
    return ServingTarget(ServingSettings(values.output or "", versions, **given))


class ServingTarget(DeployTarget):
    """Files with which TensorFlow Serving is started in a container."""

    name = "tfserving"

    def __init__(self, settings: ServingSettings):
        self._settings = settings

    def check(self, servers: ServerSettings, base: str) -> None:
        """Refuses what one container of this machine is not told, and files without a place."""
        self._check_output()
        self._check_servers(servers)

    def render(self, deployment: Deployment) -> tuple[Request, ...]:
        """The files, each as text that begins with its name."""
        return tuple(
            f"# {name}\n{content.removeprefix(SHEBANG)}"
            for name, content in self._files(deployment).items()
        )

    def deploy(self, deployment: Deployment) -> int:
        """Writes the files; a server that has them reads them again."""
        self._check_output()
        output = self._settings.output
        files = self._files(deployment)
        directory = pathlib.Path(output)
        try:
            directory.mkdir(parents=True, exist_ok=True)
            for name, content in files.items():
                _write(directory / name, content, 0o755 if name == _SCRIPT else 0o644)
        except OSError as error:
            raise UserError(f"--output={output}: {error.filename}: {error.strerror}") from None
        for line in self._next_steps(deployment, list(files)):
            say(line)
        return EXIT_OK

    def _files(self, deployment: Deployment) -> dict[str, str]:
        """Contents by name; the server's configuration, and what starts it."""
        self._check(deployment)
        settings, versions = self._settings, self._settings.versions
        base = base_in_container(deployment)
        held = versions.numbers(deployment.model)
        chosen = held if versions.policy == SPECIFIC else ()
        files = {
            "models.config": models_config(
                deployment.name, base, versions.policy, chosen, versions.labels
            ),
            "monitoring.config": monitoring_config(),
        }
        if deployment.max_batch_size:
            files["batching.config"] = batching_parameters(deployment.max_batch_size)
        ports = {
            GRPC_PORT: settings.grpc_port,
            REST_PORT: settings.rest_port,
        }
        return {**files, _SCRIPT: script(deployment, list(files), settings.host, ports)}

    def _check_output(self) -> None:
        if not self._settings.output:
            raise UserError(
                "--output is missing; name a directory for the files, or give --dry_run"
            )

    def _check_servers(self, servers: ServerSettings) -> None:
        for name, hint in _NOT_HERE.items():
            if getattr(servers, name):
                flag = _PARTS.get(name, name.removesuffix("s"))
                raise UserError(f"--target={self.name} takes no --{flag}: {hint}")
        if servers.max_replicas > 1:
            raise UserError(
                f"--target={self.name} is one server: leave --min_replicas and --max_replicas out, "
                "or use --target=kubernetes"
            )

    def _check(self, deployment: Deployment) -> None:
        self._check_servers(deployment)
        if deployment.memory_bytes:
            held = deployment.memory_bytes
            where = f"--machine=memory={byte_size.show(held)}"
            served_model.check_memory(deployment.model, held, where, self._held(deployment))

    def _held(self, deployment: Deployment) -> int:
        """How many versions a server has at once: it takes a new one before it lets one go."""
        return len(self._settings.versions.numbers(deployment.model)) + 1

    def _next_steps(self, deployment: Deployment, files: Sequence[str]) -> Sequence[str]:
        settings, model = self._settings, deployment.model
        script = os.path.join(settings.output, _SCRIPT)
        address = f"http://{settings.host}:{settings.rest_port}/v1/models/{deployment.name}"
        needed = served_model.memory_needed(model, self._held(deployment))
        lines = [
            f"wrote {', '.join(files)} to {settings.output}",
            f"it needs some {byte_size.show(needed)} of memory, while it changes versions",
            f"start it with {script}; a server that runs with these files reads them again within "
            f"{POLL_SECONDS} s",
            f"ask it with {sample_records.curl(model, address)}",
        ]
        if settings.versions.labels:
            lines.append(
                "a running server gives a label to another version only once it has that version: "
                "first deploy the version, then move the label"
            )
        if not model.has_warm_up:
            lines.append(f"{model.path} has no requests to warm it up: its first answers take long")
        if not ipaddress.ip_address(settings.address).is_loopback:
            lines.append(
                f"--address={settings.address}: the server asks for no credentials; whoever "
                "reaches its ports can ask it"
            )
        return lines


def _write(path: pathlib.Path, content: str, mode: int) -> None:
    """Puts a file in the place of one that a server may be reading."""
    staged = path.with_name(f".{path.name}.tmp")
    staged.write_text(content)
    staged.chmod(mode)
    staged.replace(path)
