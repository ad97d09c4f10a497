"""`python -m tcsim`: the command line where its script is not on the path."""

from tcsim.cli import main

main()
