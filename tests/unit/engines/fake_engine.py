"""A real program that stands in for vLLM: same flags, /health, and a few ways to misbehave.

FAKE_MODE: serve · fail (write the API key and end) · silent (never answer) · deaf (ignore SIGTERM,
with a child that ignores it too). GET /crash ends it with status 7, GET /env gives its environment.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer


class Handler(BaseHTTPRequestHandler):
    """Answers the three paths above."""

    def do_GET(self) -> None:
        if self.path == "/crash":
            os._exit(7)
        body = json.dumps(dict(os.environ)).encode() if self.path == "/env" else b""
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    port = parser.parse_known_args()[0].port
    mode = os.environ.get("FAKE_MODE", "serve")
    if mode == "fail":
        print(f"cannot go on; the key is {os.environ['VLLM_API_KEY']}")
        sys.exit(3)
    if mode == "silent":
        time.sleep(600)
    if mode == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    HTTPServer(("127.0.0.1", port), Handler).serve_forever()


if __name__ == "__main__":
    main()
