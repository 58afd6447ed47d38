"""`python -m clearhead` is the `clearhead` command."""

from clearhead.cli.main import run

if __name__ == "__main__":
    run()
