"""`python -m tacit.cli`, which is the ``tacit`` command."""

from tacit.cli.main import main

if __name__ == "__main__":
    main()
