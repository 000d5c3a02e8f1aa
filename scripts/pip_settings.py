"""Print the package sources that pip is set to use, as settings of uv, one NAME=value a line.

uv (0.13) reads neither pip.conf nor PIP_* variables. Constraint files are left out on purpose: the
list that uv installs is pinned whole, so a cap could only make it fail.
"""

import ast
import subprocess
import sys

# pip's name -> (uv's variable, how uv separates several values)
SETTINGS = {
    "index-url": ("UV_DEFAULT_INDEX", " "),
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "no-index": ("UV_NO_INDEX", " "),
    "trusted-host": ("UV_INSECURE_HOST", " "),
    "cert": ("SSL_CERT_FILE", " "),
}


def translate(listing: str) -> dict[str, str]:
    """Read `pip config list`; for each setting the last section wins, as in pip (:env: is last)."""
    rank = {"global": 0, "install": 1, ":env:": 2}
    found: dict[str, tuple[int, str]] = {}
    for line in listing.splitlines():
        key, _, quoted = line.partition("=")
        section, _, name = key.partition(".")
        if name not in SETTINGS or section not in rank:
            continue
        if name not in found or rank[section] >= found[name][0]:
            found[name] = (rank[section], str(ast.literal_eval(quoted)))
    settings = {}
    for name, (_, value) in found.items():
        variable, separator = SETTINGS[name]
        settings[variable] = separator.join(value.split())
    if "UV_INDEX" in settings:
        # pip takes the best version over all indexes; uv would stop at the first that knows a name.
        settings["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    return settings


def main() -> None:
    """Ask the pip of this interpreter. Changes nothing."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    listing = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    for variable, value in translate(listing).items():
        print(f"{variable}={value}")


if __name__ == "__main__":
    main()
