"""Running one command: from a request to an answer, with parameters, formats and errors in between.

Everything here is synchronous and runs on a worker thread. It never touches the socket, and what a
command does is its handler's business.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from yt_exactly_once.local.commands.registry import Command, Context, Rows, Stream, as_error
from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.formats import arrow_answers, row_formats, structured
from yt_exactly_once.local.formats.structured import Format
from yt_exactly_once.local.http import encodings, messages, parameters
from yt_exactly_once.local.http.messages import Answer, Request
from yt_exactly_once.local.proxy import Proxy
from yt_exactly_once.local.tables.columnar import PiecewiseRows
from yt_exactly_once.local.tables.vectors import StoredRows
from yt_exactly_once.local.tables.yson_modes import Modes

_NOT_MODIFIED = 304
_UNSUPPORTED_MEDIA_TYPE = 415
_BODY_PIECE = 4 << 20
_ROWS_PER_PIECE = 1000
_HEAD_PIECES = 2


@dataclass(frozen=True)
class Call:
    """A command that is ready to run."""

    command: Command
    context: Context
    output_format: Format
    error_format: Format
    header_format: Format
    known_etag: str | None
    output_encoding: str
    announce_trailers: bool


def prepare(proxy: Proxy, command: Command, request: Request, user: str) -> Call:
    """Read everything but the data out of a request."""
    headers = request.headers
    header_format = parameters.header_format(headers)
    content_encoding = headers.get("content-encoding", encodings.IDENTITY).strip().lower()
    if not encodings.is_supported(content_encoding):
        raise YtError(
            "Unsupported Content-Encoding",
            content_encoding=content_encoding,
            http_status=_UNSUPPORTED_MEDIA_TYPE,
        )
    if request.method == "POST" and content_encoding != encodings.IDENTITY and request.body:
        raise YtError("Content-Encoding not supported in POST body")
    mime, kind = headers.get("content-type"), command.input_type
    chosen = parameters.choose_format(headers, "x-yt-input-format", mime, kind)
    merged = parameters.gather(request, chosen, _output_format(headers, command))
    input_format = structured.parse_format(merged["input_format"])
    context = Context(proxy, command.name, merged, user)
    if request.method != "POST":
        body = _Body(request.body, content_encoding, input_format, proxy.features)
        context.read_value = body.value
        context.read_rows = body.rows
        context.read_bytes = body.pieces
    return Call(
        command,
        context,
        structured.parse_format(merged["output_format"]),
        parameters.choose_format(headers, "x-yt-error-format", None, "structured"),
        header_format,
        headers.get("if-none-match"),
        encodings.accepted(headers.get("accept-encoding", "")),
        announce_trailers="x-yt-omit-trailers" not in headers,
    )


def _output_format(headers: Mapping[str, str], command: Command) -> Format:
    # An answer without rows or values has no format to choose.
    bare = command.output_type in {"null", "binary"}
    mime = None if bare else headers.get("accept")
    return parameters.choose_format(headers, "x-yt-output-format", mime, command.output_type)


def run(call: Call) -> Answer:
    """Execute a command; every failure becomes an error answer."""
    try:
        result = call.command.handler(call.context)
        etag = call.context.etag
        if etag is not None and etag == call.known_etag:
            if isinstance(result, Stream):
                result.close()
            return Answer(_NOT_MODIFIED, {"ETag": etag})
        answer = _answer(call, result)
    except Exception as raised:  # noqa: BLE001 - as_error logs what it does not know
        return messages.error_answer(as_error(raised, call.context), call.error_format)
    return answer


def _answer(call: Call, result: Any) -> Answer:
    context, command = call.context, call.command
    headers = {"Content-Type": structured.to_mime(call.output_format)}
    if command.output_type == "binary":
        headers["Content-Type"] = "application/octet-stream"
    if context.response_parameters:
        encoded = structured.dumps(context.response_parameters, call.header_format)
        headers["X-YT-Response-Parameters"] = encoded.decode("latin-1")
    if context.etag is not None:
        headers["ETag"] = context.etag
    headers["Content-Encoding"] = call.output_encoding
    if command.output_type not in {"tabular", "binary"} or result is None:
        bare = command.output_type == "null" or result is None
        body = b"" if bare else structured.dumps(result, call.output_format)
        return Answer(
            headers=headers, body=b"".join(encodings.encode([body], call.output_encoding))
        )
    if call.announce_trailers:
        headers["Trailer"] = messages.TRAILERS
    items = result.rows if isinstance(result, Rows) else result
    close = items.close if isinstance(items, Stream) else None
    if isinstance(result, Rows) and call.output_format.name == "yson":
        modes = Modes(call.output_format.attributes)
        if not modes.change_nothing:
            items = modes.give(items, result.columns)
    if isinstance(result, Rows) and call.output_format.name == "arrow":
        pieces = arrow_answers.dump(items, result.columns)
    elif isinstance(items, StoredRows):
        pieces = row_formats.dump_stored(items, call.output_format, _ROWS_PER_PIECE)
    else:
        pieces = _pieces(command, iter(items), call.output_format)
    stream = Stream(encodings.encode(pieces, call.output_encoding), close)
    # Most answers are over by then, and every error so far is still an error of the whole answer.
    head = list(islice(stream, _HEAD_PIECES))
    whole = len(head) < _HEAD_PIECES
    return Answer(headers=headers, body=b"".join(head), rest=None if whole else stream)


def _pieces(command: Command, items: Iterator[Any], output: Format) -> Iterator[bytes]:
    """Encode the items of an answer, a limited number of rows at a time."""
    if command.output_type == "binary":
        yield from items
        return
    while batch := list(islice(items, _ROWS_PER_PIECE)):
        yield row_formats.dumps(batch, output)


@dataclass(frozen=True)
class _Body:
    """The data of a PUT, decoded when the handler asks for it."""

    raw: bytes | memoryview
    encoding: str
    format: Format
    features: Mapping[str, Any]

    def _decoded(self) -> bytes:
        decoded = encodings.decode(self.raw, self.encoding)
        # Arrow's values stay where they are.
        return decoded if self.format.name == "arrow" else bytes(decoded)  # type: ignore[return-value]

    def value(self) -> Any:
        return structured.loads(self._decoded(), self.format, "request body")

    def rows(
        self, schema: Sequence[Mapping[str, Any]] | None = None, /
    ) -> Sequence[dict[str, Any]]:
        rows = row_formats.loads(self._decoded(), self.format, schema, self.features)
        modes = Modes(self.format.attributes if self.format.name == "yson" else {})
        if modes.change_nothing or schema is None:
            return rows
        if isinstance(rows, PiecewiseRows):
            return rows.mapped(lambda piece: modes.take(piece, schema))
        return modes.take(rows, schema)

    def pieces(self) -> Iterator[bytes]:
        data = self._decoded()
        for start in range(0, len(data), _BODY_PIECE):
            yield data[start : start + _BODY_PIECE]
