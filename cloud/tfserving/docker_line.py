"""How TensorFlow Serving is started in a container of this machine."""

import shlex
from collections.abc import Mapping, Sequence

from cloud.deployment.deployment import Deployment
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


def base_in_container(deployment: Deployment) -> str:
    """Directory of the model's versions as the server sees it."""
    base = deployment.model.base
    return base if is_cloud(base) else f"{_MODELS}/{deployment.name}"


def arguments(files: Sequence[str]) -> list[str]:
    """Arguments of the server."""
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
    """A script that starts the container, with the files that lie beside it.

    The server has no rights, and writes nothing but scratch files.
    """
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
