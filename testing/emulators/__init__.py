"""Model hosts on loopback that refuse what the real ones refuse: `emulate_host`."""

from toolchart.testing.emulators.checks import Refusal as Refusal
from toolchart.testing.emulators.server import Emulator as Emulator
from toolchart.testing.emulators.server import emulate_host as emulate_host
from toolchart.testing.emulators.server import list_emulated_hosts as list_emulated_hosts
