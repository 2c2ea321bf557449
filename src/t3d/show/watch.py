"""`t3d report --watch`: the report on localhost, which follows runs while they train."""

from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from t3d.base.errors import BadInput
from t3d.show.html import as_json, page_text
from t3d.show.report import report_data, version


def serve(runs: Sequence[str | Path], port: int, ready: Callable[[str], None]) -> None:
    """Serve the page of some runs until interrupted; `ready` is called with its address."""
    report_data(runs)  # bad input is an error here, and not in the browser

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urlsplit(self.path)
            try:
                self._respond(url.path, parse_qs(url.query).get("version", []))
            except ConnectionError:
                pass  # the browser has gone
            except Exception as error:  # a bug, or a folder that was removed; the next may work
                self._send(500, "text/plain", str(error))

        def _respond(self, path: str, shown: list[str]) -> None:
            now = version(runs)
            if path not in ("/", "/data.json"):
                self._send(404, "text/plain", "not here")
            elif shown == [now]:
                self._send(204, "application/json", "")  # nothing is new
            else:
                self._send(200, *_content(path, report_data(runs) | {"version": now}))

        def _send(self, code: int, kind: str, text: str) -> None:
            content = text.encode(errors="replace")
            self.send_response(code)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            """The terminal is for the user."""

    try:
        server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    except (OSError, OverflowError) as error:
        advice = "choose another with --port, or 0 for any free one"
        raise BadInput(f"port {port} cannot be served: {error}; {advice}") from error
    with server:
        ready(f"http://127.0.0.1:{server.server_address[1]}/")
        server.serve_forever()


def _content(path: str, data: dict[str, Any]) -> tuple[str, str]:
    if path == "/":
        return "text/html", page_text("report", data)
    return "application/json", as_json(data)
