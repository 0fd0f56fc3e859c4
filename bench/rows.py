"""What can be measured: a function for each, found by its name."""

ALL = {}


class Scale:
    """How much of it: all, or as little as shows that it works."""

    def __init__(self, short=False):
        self.short = short

    def __call__(self, full, short):
        return short if self.short else full


def measure(name):
    """Registers a function (place, scale) -> [Row]; the first line of its text says what."""

    def register(function):
        assert name not in ALL and function.__doc__, name
        ALL[name] = function
        return function

    return register


def about(name):
    return ALL[name].__doc__.strip().splitlines()[0]
