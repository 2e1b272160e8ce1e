"""A module that cannot be imported."""


def read_settings() -> int:
    settings = {"width": "64"}
    return int(settings["height"])


WIDTH = read_settings()
