"""Documents that are made from the source, or say again what it says."""

import ast
import glob
import operator
import os
import re
import subprocess

import pytest

from nix_eval import ROOT, evaluate, machine
from world import BUILD


def read(path):
    with open(f"{ROOT}/{path}", encoding="utf-8") as f:
        return f.read()


def rows(text, columns):
    """The cells of table rows with that many columns; what is code is without its quotes."""
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| ") and len(cells) == columns:
            yield [cell.strip("`") for cell in cells]


def test_the_configuration_is_that_of_the_option_table():
    made = subprocess.run([f"{ROOT}/scripts/configuration", BUILD], capture_output=True, text=True,
                          check=True).stdout
    assert made == read("docs/configuration.md"), "make configuration"


def test_the_limits_of_the_operator():
    said = {option.removeprefix("--"): tuple(map(int, numbers)) for option, *numbers, _ in
            rows(read("docs/limits.md").partition("## Fixed")[0], 5) if option.startswith("--")}
    limits = evaluate(f"import {ROOT}/nix/limits.nix")
    assert said == {l["option"]: (l["default"], l["min"], l["max"]) for l in limits.values()}


OPERATORS = {ast.Mult: operator.mul, ast.LShift: operator.lshift, ast.Add: operator.add,
             ast.Sub: operator.sub}


def value_of(node, constants):
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return value_of(expression(constants[node.id]), constants)
    return OPERATORS[type(node.op)](value_of(node.left, constants),
                                    value_of(node.right, constants))


def expression(text):
    """A constant of C, without casts, suffixes and comments."""
    text = re.sub(r"/\*.*", "", text)
    text = re.sub(r"\((size_t|uint64_t|rlim_t)\)|INT64_C|UINT64_C|UINT32_C", "", text)
    return ast.parse(re.sub(r"\b(\d+|0x[0-9a-f]+)[uUlL]+\b", r"\1", text).strip(),
                     mode="eval").body


FIXED = [row for row in rows(read("docs/limits.md").partition("## Fixed")[2], 4)
         if ":" in row[2]]


@pytest.mark.parametrize("what, bound, place", [row[:3] for row in FIXED])
def test_a_fixed_limit(what, bound, place):
    path, name = place.split(":")
    constants = dict(re.findall(r"^#define (\w+)[ \t]+(.+)$", read(path).replace("\\\n", " "),
                                re.MULTILINE))
    assert value_of(expression(name), constants) == int(bound), what


def test_there_are_fixed_limits():
    assert len(FIXED) > 30


# Bounds of headers that are nobody's to meet, and why.
INTERNAL = {
    "LOG_LINE_MAX": "LOG_TEXT_MAX and what stands around it",
    "FDMSG_MAX": "of our own messages",
    "FRAME_DATA_MAX": "more is sent as more frames",
    "READER_ID_MAX": "as far as ids are compared",
    "COURIER_OUT_MAX": "the provider is not read meanwhile",
    "COURIER_PIECE_MAX": "more is sent as more pieces",
    "COURIER_VERSION_MAX": "holds every version that is known",
    "REDACT_SECRET_MAX": "at least ENDPOINT_KEY_MAX, as the compiler checks",
    "REDACT_HELD_MAX": "REDACT_SECRET_MAX, escaped",
    "REDACT_MAX": "room for what has a bound of its own, written anew",
    "FILE_CHANGES_MAX": "twice PATCH_SECTIONS_MAX, as the compiler checks",
    "OUT_INPUT_MAX": "the caller waits",
    "HTTP_PARAMS_MAX": "of our own routes",
    "HTTP_BATCH_MAX": "more are answered as more batches",
    "SYSTEM_PROMPT_MAX": "room for SESSION_INSTRUCTIONS_MAX and our own words",
    "LAUNCHER_HOSTS_MAX": "OPTION_LIST_MAX, which refuses before it",
    "VIEW_SANDBOXES_MAX": "as many as --max-active-sandboxes may be",
    "LINK_HOST_MAX": "URL_HOST_MAX, which refuses before it",
    "LINK_CONNECTIONS_MAX": "more than --max-db-connections may be",
    "TOOL_RESULT_MAX": "room for what is cut or picked before",
    "PREPARED_MAX": "of our own statements",
    "PG_PARAMS_MAX": "of our own statements",
    "SETUP_ERROR_MAX": "room for TOLD_MAX and for our own words, as the compiler checks",
    "SUMMARY_MAX": "ANSWER_BYTES of a summary, which refuses before it",
    "AGENT_DETAIL_MAX": "room for the characters that are shown of a step",
    "EARLIER_ITEM_BYTES": "what an item counts; no bound",
    "SESSION_MODEL_MAX": "more than TENANT_MODEL_MAX",
    "SESSION_CREDENTIAL_MAX": "of a digest of our own",
    "SESSION_IDS_MAX": "at least HTTP_BATCH_MAX, as the compiler checks",
    "MCP_SERVERS_MAX": "COURIER_MCP_MAX by another name",
    "JOB_FLAT_MAX": "room for a START of FRAME_CONTROL_MAX",
    "JOB_TIME_MAX": "TIMEOUT_MAX_MS, which refuses before it",
    "NFT_RULES_MAX": "of our own rules",
    "NL_MSG_MAX": "of our own messages",
    "EGRESS_HOSTS_MAX": "OPTION_LIST_MAX, which refuses before it",
    "EGRESS_DNS_MAX": "EGRESS_RESOLVERS_MAX, which refuses before it",
    "BUNDLE_MAX": "of our own configuration of a sandbox",
    "PARTS_MAX": "REGISTRY_MAX_PARTS, which refuses before it",
    "RUNSC_FLAGS_MAX": "of our own command line",
    "RUNSC_ARGS_MAX": "of our own command line",
    "OUTPUT_TAIL_MAX": "the last words of a start that failed",
    "OUTPUT_READ_MAX": "more is read the next time",
}


def test_every_bound_of_a_header_is_told_of():
    """Whoever adds one adds a row to docs/limits.md, or says above why nobody can meet it."""
    found = set()
    for folder in ("common", "daemon", "guest", "runner"):
        for path in glob.glob(f"{ROOT}/{folder}/**/*.h", recursive=True):
            if not os.path.basename(path).startswith("test_"):
                found |= set(re.findall(r"^#define (\w*(?:MAX|BYTES)\w*)[ \t]+\S",
                                        read(os.path.relpath(path, ROOT)), re.MULTILINE))
    told = set(re.findall(r"\w+", " ".join(row[2].partition(":")[2] for row in FIXED)))
    assert len(found) > 100
    assert found - told - set(INTERNAL) == set()
    assert set(INTERNAL) <= found - told


def test_the_examples_for_nixos_are_a_good_configuration():
    """All of them at once, with what the reader is to fill in."""
    text = read("docs/operate-nixos.md")
    blocks = [re.sub("^    ", "", block, flags=re.MULTILINE)
              for block in re.findall(r"(?:^    .*\n|^\n(?=    ))+", text, re.MULTILINE)]
    first = next(block for block in blocks if "nixosModules" in block).partition("({ ... }: ")[2]
    more = [block for block in blocks if block.lstrip().startswith("services.")]
    assert len(more) == text.count("\n\n    services.") > 3
    lines = first.strip().removesuffix("})") + "\n" + "".join(more) + "}"
    for number in range(lines.count('id = "…"')):
        lines = lines.replace('id = "…"', f'id = "01980000-0000-7000-8000-00000000000{number}"', 1)
    lines = lines.replace('"…"', f'"{"5a" * 32}"')
    assert "…" not in lines
    settings = ("({ config, pkgs, ... }: let cloister.packages.x86_64-linux.rootfs-nix = pkgs.writeText "
                f'"rootfs" ""; in {lines})')
    made = evaluate(f"let m = {machine(settings)}; in {{ inherit (m) refused registry service machine; }}")
    assert made["refused"] == []
    assert [tenant["name"] for tenant in made["registry"]["tenants"]] == ["acme", "globex"]
    assert re.search(" --rootfs [^ ]*-rootfs ", made["service"]["ExecStart"])
    assert "cloister.example" in made["machine"]["nginx"]["virtualHosts"]
    assert " --database-url-file " in made["service"]["ExecStart"]
    assert "/run/postgresql" in made["service"]["BindReadOnlyPaths"]


def test_the_command_lines_for_debian_are_the_units_with_more():
    """Each replaces that of the unit, so it has what that has, and nothing that nobody knows."""
    said = subprocess.run([f"{BUILD}/cloisterd", "serve", "--help"], capture_output=True, text=True, check=True).stdout
    unit = re.search(r"^ExecStart=(.*)$", read("nix/cloister.service"), re.MULTILINE)[1].split()
    lines = re.findall(r"^    ExecStart=(.+)$", read("docs/operate-debian.md"), re.MULTILINE)
    assert len(lines) == 2
    for line in lines:
        words = line.split()
        assert words[:2] == unit[:2]
        assert set(re.findall(r" --[a-z-]+", line)) <= set(re.findall(r" --[a-z-]+", said)), line
        given, own = (dict(zip(w[2::2], w[3::2], strict=True)) for w in (words, unit))
        for option in ("--tenants", "--state", "--rootfs"):
            assert given[option] == own[option], line


def test_links_lead_somewhere():
    for path in [*glob.glob(f"{ROOT}/*.md"), *glob.glob(f"{ROOT}/docs/*.md")]:
        with open(path, encoding="utf-8") as f:
            text = f.read()
        for link in re.findall(r"\]\(([^)#:]+)\)", text):
            assert os.path.exists(os.path.join(os.path.dirname(path), link)), (path, link)
        for name in re.findall(r"`((?:docs|nix|scripts|integration|daemon)/[\w./-]+\.\w+)`", text):
            assert os.path.exists(f"{ROOT}/{name}"), (path, name)


def test_every_document_is_linked_from_the_first_one():
    readme = read("README.md")
    for path in [*glob.glob(f"{ROOT}/docs/*.md"), f"{ROOT}/SECURITY.md", f"{ROOT}/CONTRIBUTING.md"]:
        assert f"]({os.path.relpath(path, ROOT)})" in readme, path
