"""The faults of a soak: one rule of every kind, each with its own chance, drawn from the seed."""

from __future__ import annotations

from typing import Any

_SECONDS_HELD = 1.0

_RULES: tuple[dict[str, Any], ...] = (
    {"action": "lose_answer", "probability": 0.01},
    {"action": "lose_request", "probability": 0.01},
    {"action": "lose_answer", "command": "commit_transaction", "probability": 0.05},
    {"action": "lose_answer", "command": "push_queue_producer", "probability": 0.05},
    {"action": "lose_answer", "command": "advance_queue_consumer", "probability": 0.02},
    {"action": "hold", "command": "commit_transaction", "probability": 0.03},
    {"action": "hold", "command": "push_queue_producer", "probability": 0.03},
    {"action": "expire_transaction", "command": "commit_transaction", "probability": 0.02},
    {"action": "error", "command": "commit_transaction", "code": 1700, "probability": 0.02},
    {"action": "error", "code": 105, "probability": 0.005},
    {"action": "unavailable", "probability": 0.01},
    {"action": "delay", "seconds": 0.1, "probability": 0.02},
    {"action": "kill_proxy", "command": "commit_transaction", "when": "after"},
    {"action": "kill_proxy", "command": "commit_transaction", "when": "before"},
    {"action": "kill_proxy", "command": "push_queue_producer", "when": "after"},
)


def rules(seed: int, kill_probability: float) -> list[dict[str, Any]]:
    """Return the fault rules of a soak.

    Args:
        seed: of the soak; every rule has its own.
        kill_probability: chance that a commit or a push kills its proxy.
    """
    return [
        {
            "probability": kill_probability,
            "seconds": _SECONDS_HELD,
            "count": None,
            "seed": seed * len(_RULES) + number,
            **rule,
        }
        for number, rule in enumerate(_RULES)
    ]
