"""`python -m autotopk` is the command line."""

from autotopk.cli.app import main

if __name__ == "__main__":
    main()
