"""`t3d report --watch`: the report on localhost, which follows runs while they go on."""

from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from t3d.base.errors import BadInput
from t3d.show.html import as_json, page_text
from t3d.show.report import report_data, version


def serve(runs: Sequence[str | Path], port: int, ready: Callable[[str], None]) -> None:
    """Serve the page of some runs until interrupted; `ready` is told its address."""
    report_data(runs)  # what is wrong is said here, and not in the browser

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = urlsplit(self.path)
            try:
                self._tell(asked.path, parse_qs(asked.query).get("known", []))
            except ConnectionError:
                pass  # who asked has gone
            except Exception as error:  # a bug, or a folder that goes away; the next may do better
                self._answer(500, "text/plain", str(error))

        def _tell(self, path: str, known: list[str]) -> None:
            now = version(runs)
            if path not in ("/", "/data.json"):
                self._answer(404, "text/plain", "not here")
            elif known == [now]:
                self._answer(204, "application/json", "")  # nothing is new
            else:
                self._answer(200, *_content(path, report_data(runs) | {"version": now}))

        def _answer(self, code: int, kind: str, text: str) -> None:
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
        advice = "take another with --port, or 0 for any"
        raise BadInput(f"port {port} cannot be served: {error}; {advice}") from error
    with server:
        ready(f"http://127.0.0.1:{server.server_address[1]}/")
        server.serve_forever()


def _content(path: str, data: dict[str, Any]) -> tuple[str, str]:
    if path == "/":
        return "text/html", page_text("report", data)
    return "application/json", as_json(data)
