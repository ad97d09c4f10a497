"""`python -m tcsim.cli` is `tcsim`."""

from tcsim.cli import main

main(prog_name="tcsim")
