"""`python -m memqos`: the command, where no script is installed."""

from memqos.cli.main import main

main()
