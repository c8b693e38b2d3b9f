"""``dpl inspect``."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from dplcli import api, pipeline
from dplcli.cli.job import ModelCommand
from dplcli.errors import UsageError, opt
from dplcli.report.inspect import contract_document, list_document, nodes_document
from dplcli.settings import InspectSettings

if TYPE_CHECKING:
    from dplcli.cli.job import Models
    from dplcli.report.document import Document
    from dplcli.settings import BaseSettings


class _InspectCommand(ModelCommand):
    """Show what MODEL is made of: interface, operators, weights, functions."""

    def document(self, models: Models, settings: BaseSettings) -> Document:
        """Look at a model, at one of its nodes, or at what kernels have to keep to."""
        (model,) = models
        assert model is not None and isinstance(settings, InspectSettings)  # noqa: S101, PT018  # as the command is declared
        header, stub = settings.header, settings.stub
        if settings.contract or header is not None or stub is not None:
            if settings.node is not None or settings.nodes:
                which = "nodes" if settings.nodes else "node"
                raise UsageError(
                    f"{opt(which)} and {opt('contract')} contradict each other",
                    hint="pass one of them",
                )
            contract = pipeline.model_contract(model)
            pipeline.write_bindings(contract, header=header, stub=stub, others=(model,))
            return contract_document(contract)
        loaded = api.load(model)
        if settings.nodes:
            loaded.ir.infer()
            return list_document(loaded.ir, model.name)
        if settings.node is None:
            return cast("Document", loaded.document())
        return nodes_document(pipeline.find_nodes(loaded.ir, settings.node), model.name)


command = _InspectCommand(
    "inspect",
    settings=InspectSettings,
)
