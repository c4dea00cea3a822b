"""Where Bedrock is, and how an entry signs in: by a bearer key, or by botocore's signatures (SigV4).

botocore is an extra, and imported when a client is made without a key, or the region is in a profile.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from toolchart.providers.shared.addresses import resolve_address
from toolchart.providers.shared.host_client import find_api_key
from toolchart.specs.models import LLMConfig
from toolchart.states.errors import SpecError, format_install

if TYPE_CHECKING:
    import httpx

_REGION_VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION")
_REGION = re.compile(r"[a-z]{2,}(?:-[a-z]+)+-\d")


def find_address(config: LLMConfig, resolve: Callable[[str], str]) -> str:
    """The address of the models: of the entry, of the environment, or that of the region.

    Raises:
        SpecError: there is neither an address nor a region.
    """
    address = resolve_address(config, resolve)
    return address or f"https://bedrock-runtime.{find_region(config, resolve)}.amazonaws.com"


def find_region(config: LLMConfig, resolve: Callable[[str], str]) -> str:
    """The region of an entry: its `region`, that in its address, the environment's, or the profile's.

    Raises:
        SpecError: there is none, or it is no name of a region.
    """
    options = config.extra_options()
    address = urlsplit(resolve_address(config, resolve) or "").hostname or ""
    named = re.search(r"bedrock[\w-]*\.([a-z0-9-]+)\.amazonaws\.com", address)
    region = resolve(str(options["region"])) if options.get("region") else None
    region = region or (named.group(1) if named else None)
    region = region or next((os.environ[name] for name in _REGION_VARIABLES if os.environ.get(name)), None)
    region = region or _find_profile_region(options.get("profile"))
    if not region or not _REGION.fullmatch(region):
        problem = f"{region!r} is no region of AWS" if region else "there is no region for Bedrock"
        raise SpecError(
            problem,
            path="llms.*.region",
            hint="give `region: eu-central-1` in the llms entry, or export AWS_REGION",
        )
    return region


def _find_profile_region(profile: Any) -> str | None:
    """The region of a profile in AWS's configuration file; None where botocore is missing."""
    signatures = _load_signatures()
    region: str | None = signatures.find_profile_region(profile) if signatures else None
    return region


def _load_signatures() -> Any:
    """The module that signs; None where botocore is missing."""
    try:
        from toolchart.providers.bedrock import signatures
    except ImportError:
        return None
    return signatures


def build_auth(config: LLMConfig, resolve: Callable[[str], str]) -> httpx.Auth | None:
    """What signs the requests of an entry; None for an entry with a key.

    Raises:
        SpecError: there is no region, or botocore is not installed.
    """
    if find_api_key(config, resolve):
        return None
    signatures = _load_signatures()
    if signatures is None:
        raise SpecError(
            "Bedrock without a key needs botocore, which signs requests",
            path="llms.*.provider",
            hint=f"{format_install('bedrock')}; or give a Bedrock key: `api_key: ${{VARIABLE}}`",
        )
    profile, region = config.extra_options().get("profile"), find_region(config, resolve)
    auth: httpx.Auth = signatures.SignatureAuth(profile, region)
    return auth
