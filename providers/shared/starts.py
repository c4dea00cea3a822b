"""What an `llms` entry can start, load, call, send or read: address, key, files, proxy, and how it signs in.

Each function stands in the row of a host (`list_starts`). It reads the entry as it is written: nothing is
imported, no variable is resolved, no connection is opened.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from toolchart.providers.descriptor import HostDescriptor
from toolchart.specs.models import LLMConfig
from toolchart.states.starts import Start, find_addresses


def list_host_starts(row: HostDescriptor, name: str, config: LLMConfig, folder: Path) -> Iterator[Start]:
    """The address of a host with the variables of address and key, and what every entry may have."""
    yield from _list_address_starts(row, name, config)
    if not config.api_key:
        yield from _list_key_variables(row, config)
    yield from _list_connection_starts(config, folder)


def list_azure_starts(row: HostDescriptor, name: str, config: LLMConfig, folder: Path) -> Iterator[Start]:
    """As `list_host_starts`, and what finds a token of Entra ID."""
    if config.extra_options().get("auth") == "entra":
        yield Start(
            kind="command",
            subject="whatever azure-identity starts to sign in (az, azd, pwsh)",
            purpose=f"signs in to the model host {name}",
        )
    yield from list_host_starts(row, name, config, folder)


def list_bedrock_starts(row: HostDescriptor, name: str, config: LLMConfig, folder: Path) -> Iterator[Start]:
    """As `list_host_starts`, and what finds AWS's credentials: a profile may name a command for that."""
    options = config.extra_options()
    region = options.get("region") or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if not config.base_url and not os.environ.get(row.address_variable):
        address = f"https://bedrock-runtime.{region or 'REGION'}.amazonaws.com"
        yield Start(kind="host", subject=address, purpose=f"model host {name} ({row.name})")
    if not config.api_key:
        profile = options.get("profile") or "of the environment"
        yield Start(
            kind="command",
            subject=f"whatever the AWS profile {profile} names as `credential_process`",
            purpose=f"signs requests to the model host {name}",
        )
        yield Start(kind="file", subject="~/.aws", purpose="is read: credentials that sign requests")
    yield from list_host_starts(row, name, config, folder)


def list_gemini_starts(row: HostDescriptor, name: str, config: LLMConfig, folder: Path) -> Iterator[Start]:
    """As `list_host_starts`; for Vertex AI also what finds Google's credentials."""
    if not config.extra_options().get("vertex"):
        yield from list_host_starts(row, name, config, folder)
        return
    vertex = config.extra_options()["vertex"]
    location = vertex.get("location", "global") if isinstance(vertex, dict) else "global"
    yield Start(
        kind="command",
        subject="whatever google-auth starts to sign in (gcloud, or what its credentials file names)",
        purpose=f"signs in to the model host {name}",
    )
    if config.base_url:
        yield from _list_address_starts(row, name, config)
    else:
        subject = f"Vertex AI (*.googleapis.com), location {location}"
        yield Start(kind="host", subject=subject, purpose=f"model host {name} ({row.name})")
    yield Start(kind="file", subject="~/.config/gcloud", purpose="is read: credentials of Google Cloud")
    yield from _list_connection_starts(config, folder)


def list_recording_starts(row: HostDescriptor, name: str, config: LLMConfig, folder: Path) -> Iterator[Start]:
    """The cassette or the log that answers."""
    options = config.extra_options()
    if options.get("cassette"):
        path = str(folder / str(options["cassette"]))
        yield Start(kind="file", subject=path, purpose=f"is read: cassette of {name}")
    log = options.get("log")
    if log and "://" in str(log):
        yield Start(kind="address", subject=str(log), purpose=f"log that is opened: the answers of {name}")
    elif log:
        path = str(folder / str(log))
        yield Start(kind="file", subject=path, purpose=f"log that is opened: the answers of {name}")
    yield from _list_connection_starts(config, folder)


def _list_address_starts(row: HostDescriptor, name: str, config: LLMConfig) -> Iterator[Start]:
    """The host at its address, and the variable that gives the address."""
    purpose = f"model host {name} ({row.name})"
    address = config.base_url or row.default_address
    if not config.base_url and row.address_variable:
        address = os.environ.get(row.address_variable) or row.default_address
        use = f"is the address of {purpose}"
        yield Start(kind="variable", subject=row.address_variable, purpose=use)
    if address:
        yield Start(kind="host", subject=address, purpose=purpose)


def _list_key_variables(row: HostDescriptor, config: LLMConfig) -> Iterator[Start]:
    """The variables whose value goes to the host as its key; see `find_api_key`."""
    is_other_host = config.base_url and "${" not in config.base_url and not row.owns_address(config.base_url)
    for variable in () if is_other_host else row.key_variables or ():
        purpose = f"is sent to the host as the key of {row.name}"
        yield Start(kind="variable", subject=variable, purpose=purpose)


def _list_connection_starts(config: LLMConfig, folder: Path) -> Iterator[Start]:
    """The files, the proxy and the further addresses of an entry."""
    if config.record:
        yield Start(kind="file", subject=str(folder / config.record), purpose="is written: every exchange")
    for key in ("ca_file", "client_certificate"):
        if path := getattr(config, key):
            yield Start(kind="file", subject=str(folder / path), purpose=f"is read as `{key}`")
    if config.proxy:
        yield Start(kind="address", subject=config.proxy, purpose="every request goes through this proxy")
    options = {key: value for key, value in config.extra_options().items() if key not in ("cassette", "log")}
    for address in find_addresses(options):
        yield Start(kind="address", subject=address, purpose="stands among the options of a model host")
