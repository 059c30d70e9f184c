"""The registry of RPC methods: which command does the work, with what parameters, and what is answered.

A method reads its request into the parameters that the command has over HTTP. Fault rules, handlers and
errors are therefore the same on both fronts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from yt_exactly_once.local.commands.registry import REGISTRY, Context
from yt_exactly_once.local.rpc import options
from yt_exactly_once.local.rpc.bus.packets import Parts
from yt_exactly_once.local.rpc.sequences import Sequences

Direction = Literal["none", "read", "write"]


@dataclass
class Call:
    """One request on its way through its method; everything here runs on a worker thread.

    Attributes:
        context: of the command.
        sequences: the order of modifications.
        request: the message that came.
        attachments: what came with it; of a stream that the client writes, all its blocks.
        response: the message to fill.
        output: attachments of the answer.
    """

    context: Context
    sequences: Sequences
    request: Any
    attachments: Parts
    response: Any
    output: list[bytes | None] = field(default_factory=list)

    def execute(self) -> Any:
        """Run the handler of the command."""
        return REGISTRY[self.context.command].handler(self.context)

    @property
    def rowset(self) -> bytes:
        """The attachments as the one rowset that they are the pieces of."""
        return b"".join(filter(None, self.attachments))


Parameters = Callable[[Any], dict[str, Any]]
Run = Callable[[Call], Any]


@dataclass(frozen=True)
class Method:
    """A method of the service.

    Attributes:
        name: on the wire.
        command: name of the command, or what tells it from the request.
        parameters: reads the parameters of the command out of the request.
        run: executes; of a method that streams its answer it returns the blocks.
        messages: follows `TReq` and `TRsp` where that is not the name.
        direction: whether a stream belongs to it, and who sends.
        opening: of a stream that the client writes: blocks that go to it first.
        several: every command that it may be, if that is not one.
        partial: what is missing compared to the real method.
    """

    name: str
    command: str | Callable[[Any], str]
    parameters: Parameters
    run: Run
    messages: str = ""
    direction: Direction = "none"
    opening: Callable[[Call], list[bytes]] | None = None
    several: tuple[str, ...] = ()
    partial: str = ""

    @property
    def commands(self) -> tuple[str, ...]:
        """Every command that it may be."""
        return (self.command,) if isinstance(self.command, str) else self.several

    def command_name(self, request: Any) -> str:
        """Return the name of the command that a request asks for."""
        return self.command if isinstance(self.command, str) else self.command(request)

    def message(self, prefix: Literal["TReq", "TRsp"]) -> str:
        """Return the name of its request or its response."""
        return prefix + (self.messages or self.name)


METHODS: dict[str, Method] = {}


def method(
    name: str,
    command: str | Callable[[Any], str],
    parameters: Parameters = options.parameters,
    **traits: Any,
) -> Callable[[Run], Run]:
    """Register a method; the traits are further attributes of `Method`."""

    def register(run: Run) -> Run:
        METHODS[name] = Method(name, command, parameters, run, **traits)
        return run

    return register


def plain(
    name: str,
    command: str,
    parameters: Parameters = options.parameters,
    *,
    answer: Callable[[Any], dict[str, Any]] = lambda found: found or {},
    **traits: Any,
) -> None:
    """Register a method that answers with the fields that its command returns; see `method`.

    Args:
        answer: makes the fields of what the command returns.
    """
    method(name, command, parameters, **traits)(
        lambda call: options.fill(call.response, answer(call.execute()))
    )
