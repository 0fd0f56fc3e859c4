"""Settings of the module as Nix has them: good ones, and good but for what a test says."""

import re

ACME = "01980000-0000-7000-8000-00000000ac3e"
GLOBEX = "01980000-0000-7000-8000-00000091b0e5"
HASH = "5994471abb01112afcc18159f6cc74b4f511b99806da59b3caf5a9c173cacfc5"


def tenant(name, identity):
    return f"""({{ lib, ... }}: {{
      services.cloister.enable = true;
      services.cloister.tenants.{name} = {{
        id = lib.mkDefault "{identity}";
        tokenFiles = lib.mkDefault {{ main = "/run/secrets/{name}"; }};
      }};
    }})"""


def module(text="", tenants=(("acme", ACME),)):
    """Settings with good tenants, and more."""
    good = "".join(tenant(*each) for each in tenants)
    return f"({{ pkgs, lib, ... }}: {{ imports = [ {good} ]; {text} }})"


def cloister(text, **options):
    """The same; each line of text is an option of services.cloister."""
    lines = re.split(r";\s*\n", text.strip().removesuffix(";"))
    return module("".join(f"services.cloister.{line.strip()};\n" for line in lines), **options)


def second(text):
    """A second tenant, good but for what text says."""
    return cloister(text, tenants=(("acme", ACME), ("globex", GLOBEX)))


def two():
    return module(tenants=(("acme", ACME), ("globex", GLOBEX)))


MODEL = '''models.m = { label = "M"; api = "messages"; baseUrl = "https://m.example/v1"; model = "m"; apiKeyFile = "/etc/key"; contextWindow = 2; maxOutputTokens = 1; }'''
SERVER = 'mcp.s = { url = "https://s.example/mcp"; tokenFile = "/etc/token"; }'
URL = 'database.urlFile = "/run/secrets/db"'
METRICS = 'metricsTokenFile = "/run/secrets/metrics"'
FILE = 'modelsFile = "/etc/models.json"'


def changed_model(old, new):
    assert old in MODEL
    return cloister(MODEL.replace(old, new))
