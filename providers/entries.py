"""What an `llms` entry says about its host: address, key, files, own settings, and what it starts."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, ValidationError

from toolchart.providers.addresses import normalize_address
from toolchart.providers.descriptor import HostDescriptor
from toolchart.providers.hosts import VERTEX_VERSION, find_host, list_builtin_hosts
from toolchart.providers.shared.host_rows import UNKNOWN_HOST, HostRow, find_row
from toolchart.providers.shared.host_tools import encode_host_tools
from toolchart.specs.models import LLMConfig
from toolchart.specs.secrets import remember_secret
from toolchart.states.descriptors import load_row_reference
from toolchart.states.errors import SpecError, suggest_name
from toolchart.states.starts import Start, find_addresses

# -- address and offline mode ----------------------------------------------------------------------
# The address comes from the `llms` entry, else from the host's environment variable, else from the host's
# row.


_FILE_KEYS = ("ca_file", "client_certificate")
"""Keys of an entry that name files."""

OFFLINE_VARIABLE = "TOOLCHART_OFFLINE"
"""Set to `1`, it forbids providers whose host is not this machine."""


def resolve_address(config: LLMConfig, resolve: Callable[[str], str]) -> str | None:
    """The base address that the adapter of an entry uses; None if the adapter has no default address.

    Args:
        resolve: replaces `${VARIABLE}` references by their values.

    Raises:
        SpecError: a variable in `base_url` is not set, the host that the entry names has no address, or the
            address is none that the adapter can use.
    """
    host, named_row, place = find_host(config.provider), find_named_row(config), "llms.*.base_url"
    if config.base_url:
        address = resolve(config.base_url)
    elif named_row is not None:
        address = get_own_address(named_row, config.provider)
    elif address := os.environ.get(host.address_variable, ""):
        place = host.address_variable
    else:
        address = _get_default_address(host, config)
    if address and host.complete_address:
        address = load_row_reference(host, host.complete_address)(address)
    if address and host.endpoint_path:
        version = _find_api_version(host, config)
        address = normalize_address(address, host, list_builtin_hosts(), place=place, api_version=version)
    _refuse_ended_host(named_row or find_row(urlsplit(address).netloc))
    return address.rstrip("/") or None


def _find_api_version(host: HostDescriptor, config: LLMConfig) -> str:
    """The version that the adapter puts before its paths; empty where it puts none."""
    options = config.extra_options()
    own_version = VERTEX_VERSION if options.get("vertex") else host.api_version
    return str(options.get("api_version") or own_version) if host.api_version else ""


def _get_default_address(host: HostDescriptor, config: LLMConfig) -> str:
    """The default address of a `provider`.

    Raises:
        SpecError: the entry names another host: what is meant for that one must not go to the default.
    """
    row = find_row(str(config.extra_options().get("host_profile") or ""))
    if row.address_form:
        raise SpecError(
            f"{row.title} has no address that all its users share",
            path="llms.*.base_url",
            hint=f"give the entry your own: `base_url: {row.address_form}`",
        )
    return host.own_row.base_url


def can_list_models(config: LLMConfig) -> bool:
    """Whether the host of an entry has a list of the models that the entry can name."""
    host = find_host(config.provider)
    address = config.base_url or host.own_row.base_url
    row = find_row(str(config.extra_options().get("host_profile") or urlsplit(address).netloc))
    if (
        row is UNKNOWN_HOST and not config.base_url
    ):  # the host of another package stands in no table but its own
        row = host.own_row
    return bool(host.list_models) and row.has_model_list


def find_named_row(config: LLMConfig) -> HostRow | None:
    """The row that `host_profile` of an entry names, where it has an address; None for other entries."""
    name = config.extra_options().get("host_profile")
    row = find_row(name) if isinstance(name, str) and config.provider == "openai" else None
    return row if row is not None and (get_own_address(row, config.provider) or row.ended_on) else None


def find_entry_row(config: LLMConfig) -> HostRow:
    """The row of the host that an entry means where it has no `base_url`: the one that it names, else the own
    host of its `provider`."""
    return find_named_row(config) or find_host(config.provider).own_row


def get_own_address(row: HostRow, provider: str) -> str:
    """The address of a host for the wire of a `provider`; empty where each user has one of their own."""
    return row.base_url if row.provider == provider else row.chat_url


def _refuse_ended_host(row: HostRow) -> None:
    """Refuse a host that was switched off.

    Raises:
        SpecError: it was.
    """
    if row.ended_on:
        raise SpecError(
            f"{row.title} was switched off on {row.ended_on}",
            path="llms.*",
            hint=f"name another host; source: {row.source}",
        )


def is_local_address(address: str) -> bool:
    """Whether an address is `localhost` or a loopback IP; no name is looked up.

    >>> is_local_address("http://127.0.0.1:8080/v1"), is_local_address("https://api.openai.com")
    (True, False)
    """
    host = urlsplit(address).hostname or ""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def check_offline_mode(config: LLMConfig, resolve: Callable[[str], str]) -> None:
    """Refuse an entry whose host is not this machine, if `TOOLCHART_OFFLINE=1` is set.

    Args:
        resolve: replaces `${VARIABLE}` references by their values.

    Raises:
        SpecError: the host is remote and offline mode is on.
    """
    if _is_offline() and find_host(config.provider).needs_network:
        refuse_remote_address(resolve_address(config, resolve), config.provider)


def _is_offline() -> bool:
    return os.environ.get(OFFLINE_VARIABLE, "").lower() in ("1", "true", "yes")


def refuse_remote_address(address: str | None, provider: str) -> None:
    """Refuse an address that is not this machine, if `TOOLCHART_OFFLINE=1` is set.

    Args:
        address: None for the default address of a provider, which is remote.

    Raises:
        SpecError: the address is remote and offline mode is on.
    """
    if _is_offline() and (address is None or not is_local_address(address)):
        raise SpecError(
            f"{OFFLINE_VARIABLE}=1 forbids provider {provider!r} at {address or 'its default address'}",
            path="llms.*.provider",
            hint="use `scripted` or a base_url on this machine; "
            f"or unset {OFFLINE_VARIABLE} to contact remote hosts",
        )


def resolve_file_paths(config: LLMConfig, folder: Path, resolve: Callable[[str], str]) -> LLMConfig:
    """The entry with the paths of its files relative to the current folder.

    Args:
        folder: to which they are relative in the entry: that of the spec.
        resolve: replaces `${VARIABLE}` references by their values.
    """
    names = {key: getattr(config, key, None) for key in _FILE_KEYS}
    paths = {key: str(folder / resolve(str(name))) for key, name in names.items() if name}
    return config.model_copy(update=paths) if paths else config


def find_api_key(config: LLMConfig, resolve: Callable[[str], str]) -> str | None:
    """The key that an entry's adapter sends: the entry's own, else the environment's.

    The environment's key goes to no host but its own: an entry with another `base_url` names its key itself.

    Raises:
        SpecError: a variable in `api_key` is not set.
    """
    if config.api_key:
        key: str | None = resolve(config.api_key)
    else:
        names = list_own_variables(config, resolve)
        key = next((os.environ[name] for name in names if os.environ.get(name)), None)
    if key:
        remember_secret(key)
    return key


def list_own_variables(config: LLMConfig, resolve: Callable[[str], str]) -> tuple[str, ...]:
    """The variables whose value may go to the host of an entry as its key, the first one first."""
    row = find_key_row(config, resolve(config.base_url)) if config.base_url else find_entry_row(config)
    return row.key_variables


def find_key_row(config: LLMConfig, address: str) -> HostRow:
    """The row of the host that an address belongs to, which may get its key; `UNKNOWN_HOST` for a stranger's
    address, and over plain HTTP, where the name of a host says nothing, unless it is this machine's."""
    parts = urlsplit(address)
    name = parts.hostname or ""
    # A row whose address is one of this machine is known by its word alone.
    named_row = find_named_row(config) or UNKNOWN_HOST
    for row in (find_host(config.provider).own_row, named_row, find_row(parts.netloc)):
        is_own = name == urlsplit(row.base_url).hostname or name in row.list_domains()
        # Where each user has an address of their own, it is below the host's domain.
        is_own = is_own or bool(row.address_form and name.partition(".")[2] in row.domains)
        if is_own and row.provider == config.provider:
            return row if parts.scheme == "https" or is_local_address(address) else UNKNOWN_HOST
    return UNKNOWN_HOST


# -- settings of one adapter -----------------------------------------------------------------------


class AdapterSettings(BaseModel):
    """Base class for the keys that only one adapter has."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


SettingsType = TypeVar("SettingsType", bound=AdapterSettings)


def read_adapter_settings(
    settings_type: type[SettingsType], config: LLMConfig, defaults: Mapping[str, Any] | None = None
) -> SettingsType:
    """The adapter's own keys of an entry.

    Args:
        defaults: values for keys that the entry does not have.

    Raises:
        SpecError: a key that this adapter does not have (with a suggestion), or a wrong value.
    """
    try:
        return settings_type.model_validate({**(defaults or {}), **config.extra_options()})
    except ValidationError as error:
        detail = error.errors(include_url=False)[0]
        key = ".".join(map(str, detail["loc"]))
        if detail["type"] == "extra_forbidden":
            allowed_keys = [*settings_type.model_fields, *(set(LLMConfig.model_fields) - {"comment"})]
            raise SpecError(
                f"provider {config.provider!r} has no setting {key!r}",
                path=f"llms.*.{key}",
                hint=suggest_name(key, allowed_keys),
            ) from None
        raise SpecError(f"provider {config.provider!r}: {key}: {detail['msg']}") from None


# -- what an entry starts --------------------------------------------------------------------------
# Each function stands in the row of a host (`list_starts`). It reads the entry as it is written: nothing is
# imported, no variable is resolved, no connection is opened.


def check_host_tools(declared: Sequence[Mapping[str, Any]], config: LLMConfig, path: str) -> None:
    """Refuse tools of a host that the host of an entry does not have, before any conversation.

    Args:
        declared: the handler's `host_tools`.
        path: where they stand in the spec.

    Raises:
        SpecError: the host has no such tool, or takes no such parameter; says which ones it has.
    """
    row, options = find_host(config.provider), config.extra_options()
    if not row.needs_network:
        return  # a script answers whatever it is asked
    api = options.get("api")
    wires = [wire.name for wire in row.formats if api in (None, wire.name)]
    address = urlsplit(config.base_url or row.own_row.base_url)
    name = options.get("host_profile") or address.hostname or ""
    encode_host_tools(declared, wires, find_row(str(name)).name, path)


def list_host_starts(row: HostDescriptor, name: str, config: LLMConfig, folder: Path) -> Iterator[Start]:
    """The address of a host with the variables of address and key, and what every entry may have."""
    yield from _list_address_starts(row, name, config)
    if not config.api_key:
        yield from _list_key_variables(row, config)
    yield from _list_connection_starts(config, folder)


def list_openai_starts(row: HostDescriptor, name: str, config: LLMConfig, folder: Path) -> Iterator[Start]:
    """As `list_host_starts`; for `auth: entra` what finds a token of Entra ID, in place of a key."""
    if config.extra_options().get("auth") != "entra":
        yield from list_host_starts(row, name, config, folder)
        return
    yield Start(
        kind="command",
        subject="whatever azure-identity starts to sign in (az, azd, pwsh)",
        purpose=f"signs in to the model host {name}",
    )
    yield from _list_address_starts(row, name, config)
    yield from _list_connection_starts(config, folder)


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


def _list_address_starts(row: HostDescriptor, name: str, config: LLMConfig) -> Iterator[Start]:
    """The host at its address, and the variable that gives the address."""
    purpose = f"model host {name} ({row.name})"
    named_row = find_named_row(config)
    address = config.base_url or get_own_address(named_row or row.own_row, row.name)
    if not config.base_url and named_row is None and row.address_variable:
        address = os.environ.get(row.address_variable) or address
        use = f"is the address of {purpose}"
        yield Start(kind="variable", subject=row.address_variable, purpose=use)
    if address:
        yield Start(kind="host", subject=address, purpose=purpose)


def _list_key_variables(row: HostDescriptor, config: LLMConfig) -> Iterator[Start]:
    """The variables whose value goes to the host as its key; see `find_api_key`."""
    is_written = config.base_url and "${" not in config.base_url
    host_row = find_key_row(config, config.base_url or "") if is_written else find_entry_row(config)
    title = urlsplit(config.base_url or "").netloc if is_written else host_row.title
    if host_row is row.own_row:
        title = row.name
    for variable in host_row.key_variables:
        yield Start(kind="variable", subject=variable, purpose=f"is sent to the host as the key of {title}")


def _list_connection_starts(config: LLMConfig, folder: Path) -> Iterator[Start]:
    """The files, the proxy and the further addresses of an entry."""
    for key in ("ca_file", "client_certificate"):
        if path := getattr(config, key):
            yield Start(kind="file", subject=str(folder / path), purpose=f"is read as `{key}`")
    if config.proxy:
        yield Start(kind="address", subject=config.proxy, purpose="every request goes through this proxy")
    for address in find_addresses(config.extra_options()):
        yield Start(kind="address", subject=address, purpose="stands among the options of a model host")
