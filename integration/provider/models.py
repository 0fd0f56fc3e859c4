"""Files of models for daemons under test."""

import json

from daemon import write_file

DIALECTS = ("chat-completions", "responses", "messages")
KEY = "sk-canary/0123456789+abcdefghijklmnopqrstuvwxyz=="


def entry(name, dialect, url, **more):
    return {"id": name, "label": f"{name} (test)", "api": dialect, "baseUrl": url,
            "model": f"vendor/{name}", "contextWindow": 100000, "maxOutputTokens": 1000, **more}


def declare(daemon, *models):
    """Writes a models file and the key of those that name none; apiKeyFile None: no key."""
    key = f"{daemon.var}/tokens/key"
    write_file(key, KEY + "\n")
    models = [{"apiKeyFile": key, **m} for m in models]
    models = [{k: v for k, v in m.items() if v is not None} for m in models]
    path = f"{daemon.var}/models.json"
    write_file(path, json.dumps({"version": 1, "models": models}))
    return path


def ask(client, model, line="say it"):
    return client.run(client.session(model=model), line)
