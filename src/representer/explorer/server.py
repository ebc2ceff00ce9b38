"""A server of the page for this machine alone: one address with a random token, one origin, nothing from elsewhere."""

from __future__ import annotations

import hmac
import secrets
import socket
import webbrowser
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from representer.explorer.explorer import Explorer
from representer.explorer.page import POLICY, as_json, part

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

HOST = "127.0.0.1"
SIZE_LIMIT = 1_000_000  # the largest number of bytes of a question
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
KINDS = {"page.css": "text/css", "page.js": "text/javascript"}

Question = dict[str, object]


def questions(explorer: Explorer) -> dict[str, Callable[[Question], object]]:
    """The questions that the page may ask, by name."""
    return {
        "overview": lambda q: explorer.overview(),
        "drawing": lambda q: explorer.draw(_whole(q, "i"), anchor=bool(q.get("anchor"))),
        "explain": lambda q: explorer.explain(_whole(q, "i")),
        "interval": lambda q: explorer.interval(_whole(q, "i")),
        "ask": lambda q: explorer.ask(q.get("edited"), _whole(q, "like")),
        "decode": lambda q: explorer.decode(_numbers(q, "places", 2)),  # type: ignore[arg-type]
        "traverse": lambda q: explorer.traverse(
            _whole(q, "component"), None if q.get("start") is None else _numbers(q, "start", 1)
        ),
        "sample": lambda q: explorer.sample(_whole(q, "n"), _whole(q, "seed")),
        "tune": lambda q: explorer.tune(_whole(q, "which"), _factors(q), _alpha(q)),
    }


def _whole(question: Question, name: str) -> int:
    value = question.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{name} must be a whole number; got {str(value)[:60]!r}.")
    return value


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _numbers(question: Question, name: str, depth: int) -> list[float]:
    value = question.get(name)
    rows = value if depth == 2 else [value]
    if not isinstance(rows, list) or not all(isinstance(row, list) and all(map(_is_number, row)) for row in rows):
        raise ValueError(f"{name} must be numbers in lists.")
    if len(rows) > 400:
        raise ValueError(f"At most 400 {name} are asked for at once; got {len(rows)}.")
    return value  # type: ignore[return-value]


def _factors(question: Question) -> dict[str, float]:
    factors = question.get("factors") or {}
    if not isinstance(factors, dict) or not all(map(_is_number, factors.values())):
        raise ValueError("factors must be numbers by name.")
    return {str(name): float(value) for name, value in factors.items()}


def _alpha(question: Question) -> float | None:
    alpha = question.get("alpha")
    if alpha is not None and not _is_number(alpha):
        raise ValueError("alpha must be a number.")
    return None if alpha is None else float(alpha)  # type: ignore[arg-type]


def application(explorer: Explorer, token: str, hosts: tuple[str, ...]) -> Starlette:
    """The server application, where every address begins with the token and every request names one of the hosts."""
    try:
        from starlette.applications import Starlette
        from starlette.concurrency import run_in_threadpool
        from starlette.responses import PlainTextResponse, Response
        from starlette.routing import Route
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "The explorer needs starlette and uvicorn; install them with: pip install 'representer[app]'.",
            name=error.name,
        ) from error
    answers = questions(explorer)

    def refused(request: Request) -> Response | None:
        """The refusal of a request by another host, another site or another token; None if it is answered."""
        if request.headers.get("host", "") not in hosts:
            return PlainTextResponse("This host is not served.", 403, HEADERS)
        origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site", "none")
        if (origin is not None and origin not in {f"http://{host}" for host in hosts}) or site == "cross-site":
            return PlainTextResponse("Other sites are not answered.", 403, HEADERS)
        if not hmac.compare_digest(request.path_params["token"].encode(), token.encode()):
            return PlainTextResponse("The token in the address is wrong.", 403, HEADERS)
        return None

    def guarded(answer: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            refusal = refused(request)
            response = await answer(request) if refusal is None else refusal
            response.headers.update(HEADERS)
            return response

        return endpoint

    async def page(request: Request) -> Response:
        name = request.path_params.get("name", "")
        if not name:
            return Response(part("page.html"), media_type="text/html")
        if name not in KINDS:
            return PlainTextResponse("Nothing here.", 404)
        return Response(part(name), media_type=KINDS[name])

    async def ask(request: Request) -> Response:
        answer = answers.get(request.path_params["name"])
        if answer is None:
            return PlainTextResponse("There is no such question.", 404)
        if int(request.headers.get("content-length") or 0) > SIZE_LIMIT:
            return Response(as_json({"error": "The question is too long."}), 413, media_type="application/json")
        try:
            question = await request.json()
            if not isinstance(question, dict):
                raise ValueError("A question is a JSON object.")
            text = as_json(await run_in_threadpool(answer, question))
        except (ValueError, TypeError, ArithmeticError, RecursionError) as error:
            return Response(as_json({"error": str(error)}), 400, media_type="application/json")
        return Response(text, media_type="application/json")

    routes = [
        Route("/{token}/ask/{name}", guarded(ask), methods=["POST"]),
        Route("/{token}/", guarded(page)),
        Route("/{token}/{name}", guarded(page)),
    ]
    return Starlette(routes=routes)


def serve(explorer: Explorer, *, port: int = 0, browser: bool = True) -> None:
    """Serve an explorer to this machine until it is interrupted. Needs starlette and uvicorn (the extra ``app``).

    Parameters
    ----------
    explorer : Explorer
        The explorer that the page shows.
    port : int, default=0
        The port; 0 is a free one.
    browser : bool, default=True
        Is the address opened in a browser?
    """
    token = secrets.token_urlsafe(24)
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, port))
        number = listener.getsockname()[1]
        server = application(explorer, token, (f"{HOST}:{number}", f"localhost:{number}"))
        import uvicorn

        address = f"http://{HOST}:{number}/{token}/"
        print(f"The page is at {address}\nPress Ctrl+C to end.", flush=True)
        if browser:
            webbrowser.open(address)
        config = uvicorn.Config(server, log_level="warning", server_header=False)
        uvicorn.Server(config).run(sockets=[listener])
