"""The command line: `tcsim VERB …`, one module a group of verbs."""

from __future__ import annotations

from tcsim.cli import machine, numbers, schemes, studies, units
from tcsim.cli.group import main
from tcsim.cli.studies import study_command
from tcsim.probing.cli import COMMANDS
from tcsim.probing.predict_command import predict

for _verb in (*COMMANDS, predict):
    main.add_command(_verb)

__all__ = ["machine", "main", "numbers", "schemes", "studies", "study_command", "units"]
