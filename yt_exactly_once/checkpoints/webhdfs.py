"""WebHDFS as Spark's client speaks it: one request in, one answer out, on files in Cypress.

It knows no sockets. Errors go back as the exceptions of Hadoop that Spark expects, with the text of ours.
Answers carry no Content-Type: the client in Spark's jars lacks the class it would parse one with.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import IO, TYPE_CHECKING, Any

from yt_exactly_once import errors
from yt_exactly_once.checkpoints.folders import final_name
from yt_exactly_once.ytsaurus.files import PIECE, CypressFiles, Node

if TYPE_CHECKING:
    from yt_exactly_once.checkpoints.folders import Segments, ServedFolders

PREFIX = "/webhdfs/v1"
"""What the path of every request begins with."""

_REPLACEMENT_SECONDS = 60.0
"""How long after its look at a scratch file a client may replace the final one."""

_NO_LINK_SECONDS = 10.0

_BLOCK_SIZE = 128 * 1024 * 1024
_OWNER = "yt"
_WITHOUT_PATH: dict[str, dict[str, Any]] = {
    "GETHOMEDIRECTORY": {"Path": "/"},
    "GETSERVERDEFAULTS": {
        "FsServerDefaults": {
            "blockSize": _BLOCK_SIZE,
            "bytesPerChecksum": 512,
            "checksumType": 0,  # none
            "defaultStoragePolicyId": 0,
            "encryptDataTransfer": False,
            "fileBufferSize": 65536,
            "keyProviderUri": "",
            "replication": 1,
            "trashInterval": 0,
            "writePacketSize": 65536,
        }
    },
}
"""Answers to what the client asks without a path, and so without the secret. They tell nothing."""

_IO_EXCEPTION = "java.io.IOException"
_EXCEPTIONS: tuple[tuple[type[errors.ExactlyOnceError], int, str], ...] = (
    (errors.AccessError, 403, "org.apache.hadoop.security.AccessControlException"),
    (errors.TableNotFoundError, 404, "java.io.FileNotFoundException"),
    (errors.PathExistsError, 403, "org.apache.hadoop.fs.FileAlreadyExistsException"),
    (errors.RequestRefusedError, 403, _IO_EXCEPTION),
    (errors.ExactlyOnceError, 503, _IO_EXCEPTION),
)
"""Status and Java class of each error; the first row that fits decides."""


@dataclass(frozen=True)
class Request:
    """One request.

    Attributes:
        path: of the file, with the secret and without `PREFIX`.
        query: parameters; names in lower case.
        body: of the request, from its start.
        url: as the client sent it.
    """

    method: str
    path: str = field(repr=False)
    query: Mapping[str, str] = field(repr=False)
    body: IO[bytes]
    size: int
    url: str = field(repr=False)

    @property
    def operation(self) -> str:
        """What WebHDFS is asked to do."""
        return self.query.get("op", "").upper()

    @property
    def takes_body(self) -> bool:
        """Whether it brings the data of a file."""
        is_create = (self.method, self.operation) == ("PUT", "CREATE")
        return is_create and self.query.get("data") == "true"


@dataclass(frozen=True)
class Answer:
    """One answer: its body in pieces, and headers besides the length."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: Iterator[bytes] = field(default_factory=lambda: iter(()))
    size: int = 0

    @classmethod
    def of(cls, value: Any, status: int = 200) -> Answer:
        """Return an answer with a JSON body."""
        body = json.dumps(value).encode()
        return cls(status, {}, iter([body]), len(body))


class _Replacements:
    """Which final files are about to be replaced by which scratch files.

    Hadoop's client cannot replace a file at once. It looks at both files, deletes the final one and renames
    the scratch file. Killed in between, it leaves neither. So after the look, such a deletion is only
    noted, and the rename replaces.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._looks: dict[tuple[Segments, str], float] = {}
        self._deleted: dict[tuple[Segments, str], float] = {}

    def looked_at(self, segments: Segments) -> None:
        """Note that a client looked at a file before a rename."""
        final = final_name(segments[-1]) if segments else None
        if final is None:
            return
        now = time.monotonic()
        with self._lock:
            for notes in (self._looks, self._deleted):
                for key in [
                    key for key, then in notes.items() if now - then > _REPLACEMENT_SECONDS
                ]:
                    del notes[key]
            self._looks[(*segments[:-1], final), segments[-1]] = now

    def deletes(self, segments: Segments) -> bool:
        """Return whether a deletion is a part of replacing a file, and note it."""
        with self._lock:
            found = [key for key in self._looks if key[0] == segments]
            for key in found:
                self._deleted[key] = self._looks[key]
        return bool(found)

    def replaces(self, source: Segments, target: Segments) -> bool:
        """Return whether a rename may replace its target, and forget its look."""
        with self._lock:
            self._looks.pop((target, source[-1]), None)
            return self._deleted.pop((target, source[-1]), None) is not None


class _Links:
    """Refuses links in Cypress: they lead where the token of the gateway may go, and not only its clients.

    What was no link is not asked for again for some seconds. Whoever may write into a root of the gateway can
    win that race, so these are trusted with what the token of the gateway may do.
    """

    def __init__(self, files: CypressFiles) -> None:
        self._files = files
        self._lock = Lock()
        self._known: dict[Segments, float] = {}

    def refuse(self, segments: Segments, root: Segments) -> None:
        """Return when there is no link on a path, from the root on; raise `AccessError` if there is one."""
        for length in range(len(root), len(segments) + 1):
            # Nobody has put a link where only Spark knows the name.
            if length < len(segments) or final_name(segments[-1]) is None:
                self._refuse_one(segments[:length])

    def describe(self, segments: Segments, root: Segments) -> Node | None:
        """Return what is at a path; raises as `refuse` does."""
        if segments != root:
            self.refuse(segments[:-1], root)
        found = self._files.describe(segments)
        if found is not None and found.is_link:
            raise errors.AccessError(
                "The gateway does not follow links in Cypress",
                remedy="Use the path that the link leads to, and a --root that contains it",
                path="//" + "/".join(segments),
            )
        return found

    def _refuse_one(self, segments: Segments) -> None:
        now = time.monotonic()
        with self._lock:
            if self._known.get(segments, 0.0) > now:
                return
        self.describe(segments, segments)
        with self._lock:
            self._known = {key: end for key, end in self._known.items() if end > now}
            self._known[segments] = now + _NO_LINK_SECONDS


class WebHdfs:
    """Answers requests; may be used by several threads."""

    def __init__(self, files: CypressFiles, served: ServedFolders) -> None:
        self._files = files
        self._served = served
        self._replacements = _Replacements()
        self._links = _Links(files)
        self._operations: dict[tuple[str, str], Callable[[Request, Segments], Answer]] = {
            ("GET", "OPEN"): self._open,
            ("GET", "GETFILESTATUS"): self._status,
            ("GET", "GETFILELINKSTATUS"): self._status,
            ("GET", "LISTSTATUS"): self._list,
            ("GET", "LISTSTATUS_BATCH"): self._list,
            ("PUT", "CREATE"): self._create,
            ("PUT", "MKDIRS"): self._make_folder,
            ("PUT", "RENAME"): self._rename,
            ("DELETE", "DELETE"): self._delete,
        }

    def without_cluster(self, request: Request) -> Answer | None:
        """Return the answer to a request without a path; `None`, or `AccessError`, for one about a file."""
        if request.operation in _WITHOUT_PATH:
            return Answer.of(_WITHOUT_PATH[request.operation])
        self._served.locate(request.path)
        return None

    def answer(self, request: Request) -> Answer:
        """Carry out a request about a file; every error becomes an answer."""
        operation = request.operation
        try:
            segments = self._served.locate(request.path)
            run = self._operations.get((request.method, operation))
            # What tells the status sees a link by itself.
            if run != self._status:
                self._links.refuse(segments, self._served.root_of(segments) or ())
            if run is None:
                raise errors.RequestRefusedError(
                    f"The checkpoint gateway has no operation {operation or '(none)'}",
                    remedy="Use it for checkpoints of Structured Streaming only",
                )
            return run(request, segments)
        except errors.ExactlyOnceError as error:
            return refusal(error)

    def _open(self, request: Request, segments: Segments) -> Answer:
        offset = _number(request, "offset", 0)
        limit = _number(request, "length", -1)
        wanted = PIECE if limit < 0 else min(PIECE, limit)
        first = self._files.read(segments, offset, wanted)
        if len(first) < PIECE or len(first) == limit:
            return Answer(200, {}, iter([first]), len(first))
        found = self._files.describe(segments)
        if found is None:
            raise _missing(segments)
        size = found.size - offset if limit < 0 else min(limit, found.size - offset)
        return Answer(200, {}, self._pieces(segments, offset, size, first), size)

    def _pieces(self, segments: Segments, offset: int, size: int, first: bytes) -> Iterator[bytes]:
        yield first
        done = len(first)
        while done < size:
            piece = self._files.read(segments, offset + done, min(PIECE, size - done))
            if not piece:
                return
            yield piece
            done += len(piece)

    def _status(self, request: Request, segments: Segments) -> Answer:
        if request.operation == "GETFILELINKSTATUS":
            self._replacements.looked_at(segments)
        found = self._links.describe(segments, self._served.root_of(segments) or ())
        if found is None:
            raise _missing(segments)
        return Answer.of({"FileStatus": _file_status(found)})

    def _list(self, request: Request, segments: Segments) -> Answer:
        try:
            children = self._files.children(segments)
        except errors.RequestRefusedError:
            # Hadoop lists a file as itself.
            found = self._files.describe(segments)
            if found is None or found.is_folder:
                raise
            children = [found]
        listing = {"FileStatuses": {"FileStatus": [_file_status(child) for child in children]}}
        if request.operation == "LISTSTATUS":
            return Answer.of(listing)
        return Answer.of({"DirectoryListing": {"partialListing": listing, "remainingEntries": 0}})

    def _create(self, request: Request, segments: Segments) -> Answer:
        if not request.takes_body:
            # The client sends its data only where it is sent to.
            return Answer(307, {"Location": f"{request.url}&data=true"})
        self._files.write(
            segments,
            request.body,
            request.size,
            scratch=final_name(segments[-1]) is not None,
            replace=request.query.get("overwrite") == "true",
        )
        return Answer(201)

    def _make_folder(self, _request: Request, segments: Segments) -> Answer:
        self._files.make_folder(segments)
        return Answer.of({"boolean": True})

    def _rename(self, request: Request, segments: Segments) -> Answer:
        target = self._served.locate(request.query.get("destination", ""))
        self._served.require_inner(segments)
        self._served.require_inner(target)
        self._links.refuse(target, self._served.root_of(target) or ())
        options = request.query.get("renameoptions")
        replace = self._replacements.replaces(segments, target) or (
            options is not None and "OVERWRITE" in options.split(",")
        )
        try:
            self._files.rename(
                segments, target, scratch=final_name(segments[-1]) is not None, replace=replace
            )
        except (errors.PathExistsError, errors.TableNotFoundError):
            if options is not None:
                raise
            # The older of the two calls of Hadoop says so with its result.
            return Answer.of({"boolean": False})
        return Answer(200) if options is not None else Answer.of({"boolean": True})

    def _delete(self, request: Request, segments: Segments) -> Answer:
        self._served.require_inner(segments)
        recursive = request.query.get("recursive") == "true"
        if not recursive and self._replacements.deletes(segments):
            return Answer.of({"boolean": True})
        return Answer.of({"boolean": self._files.remove(segments, recursive=recursive)})


def refusal(error: errors.ExactlyOnceError) -> Answer:
    """Return the answer that becomes an exception in the client."""
    status, name = next(
        (status, name) for kind, status, name in _EXCEPTIONS if isinstance(error, kind)
    )
    described = {
        "exception": name.rpartition(".")[2],
        "javaClassName": name,
        "message": f"{type(error).__name__}: {error}",
    }
    return Answer.of({"RemoteException": described}, status)


def _missing(segments: Segments) -> errors.TableNotFoundError:
    return errors.TableNotFoundError("There is nothing at the path", path="//" + "/".join(segments))


def _number(request: Request, name: str, default: int) -> int:
    text = request.query.get(name)
    if text is None or text == "null":
        return default
    try:
        return int(text)
    except ValueError:
        raise errors.RequestRefusedError(
            f"The parameter {name} is {text!r}, not a number"
        ) from None


def _file_status(node: Node) -> dict[str, Any]:
    modified = int(node.modified.timestamp() * 1000)
    return {
        "accessTime": 0 if node.is_folder else modified,
        "blockSize": 0 if node.is_folder else _BLOCK_SIZE,
        "group": _OWNER,
        "length": node.size,
        "modificationTime": modified,
        "owner": _OWNER,
        "pathSuffix": node.name,
        "permission": "755" if node.is_folder else "644",
        "replication": 0 if node.is_folder else 1,
        "type": "DIRECTORY" if node.is_folder else "FILE",
    }
