"""`python -m autotopk` is the command line."""

from autotopk.cli import main

if __name__ == "__main__":
    main()
