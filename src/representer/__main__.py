"""``python -m representer``: the command."""

from representer.cli import main

if __name__ == "__main__":
    main()
