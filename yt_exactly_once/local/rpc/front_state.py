"""What the RPC front of a proxy remembers between requests."""

from __future__ import annotations

from dataclasses import dataclass, field

from yt_exactly_once.local.rpc.sequences import Sequences


@dataclass
class FrontState:
    """Shared by all connections.

    Attributes:
        sequences: the order of modifications.
        committing: ids of transactions whose commit a fault holds back.
    """

    sequences: Sequences = field(default_factory=Sequences)
    committing: set[str] = field(default_factory=set)
