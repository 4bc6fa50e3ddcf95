"""The command ``kvproof``: its own packages are found whatever lies on the user's path."""

from kvproof.engines.vllm.inside.start import OWN, open_door


def main() -> None:
    open_door(OWN)
    from kvproof.cli import main as run  # noqa: PLC0415 - found through the door

    run()


if __name__ == "__main__":
    main()
