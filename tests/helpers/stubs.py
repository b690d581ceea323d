"""Programs and web servers that stand in for real ones."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer


def write_program(path, script=""):
    """Write an executable script, of the shell unless it names another program."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(script if script.startswith("#!") else f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@contextmanager
def web_server(answer):
    """Serve ``answer(method, path, body)``, a status and a text, on a free port; yield the port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, text = answer(self.command, self.path, body)
            self.send_response(status)
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        do_POST = do_GET  # noqa: N815 -- the base class names it

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield http.server_port
        http.shutdown()
        thread.join()
