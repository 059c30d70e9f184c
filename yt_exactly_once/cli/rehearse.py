"""`rehearse`: new code on the last batches of a query, before it is deployed."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import click

from yt_exactly_once.cli.options import json_option, number, several
from yt_exactly_once.cli.output import print_json
from yt_exactly_once.errors import ConfigError
from yt_exactly_once.operations.view import console


@click.command("rehearse")
@click.argument("function", metavar="MODULE:FUNCTION")
@click.argument("checkpoint")
@number("--batches N", "How many of the last finished batches to run again.", 1, default=5)
@several("--conf NAME=VALUE", "Setting of Spark")
@json_option
def command(
    function: str, checkpoint: str, batches: int, conf: tuple[str, ...], as_json: bool
) -> bool:
    """Run the last batches of CHECKPOINT again with new code, write nothing, and compare the rows.

    MODULE:FUNCTION is the new code: a function that takes a session and a trial, starts the query with
    trial.checkpoint as its checkpointLocation, and returns it. Modules are found from here, too.

    CHECKPOINT is the checkpointLocation of the query. It is copied first, and stays as it is. The query may
    run meanwhile. The token comes from YT_TOKEN, as in the query.

    "same rows" is proven by the digest that the ledger or the history has of a batch, or by the rows of the
    target if they have their source or a key. "not proven" means that only the number of rows is known.
    """
    from yt_exactly_once.testing import rehearse  # noqa: PLC0415 - imports Spark

    settings = [one.partition("=") for one in conf]
    if wrong := [name for name, equals, _ in settings if not equals]:
        raise click.UsageError(f"--conf needs NAME=VALUE, not {wrong[0]}")
    job = _function(function)
    found = rehearse(
        job, checkpoint, batches=batches, conf={name: value for name, _, value in settings}
    )
    if as_json:
        print_json(found.to_json())
    else:
        console().print(str(found), soft_wrap=True, markup=False)
    return not found.same


def _function(name: str) -> Any:
    module, colon, function = name.partition(":")
    sys.path.insert(0, "")
    try:
        found = getattr(import_module(module), function) if colon else None
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"There is no {name}: {error}",
            remedy="Name a module that Python can import from here, and a function in it: MODULE:FUNCTION",
        ) from error
    if not callable(found):
        raise click.UsageError("Name the new code as MODULE:FUNCTION")
    return found
