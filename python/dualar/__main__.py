"""`python -m dualar`: the command line, for where the script `dualar` is not on the path."""

from dualar.cli import main

main()
